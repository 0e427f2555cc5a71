"""The primitives and draws that the tables beside TensorIR do not name."""

from __future__ import annotations

import re

from docs.generate.pages import FOLDER
from tensorc_dsl.faces.report.entries import code
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.trace.draws import DRAWS

PAGE = FOLDER.parent / "tensorir.md"


def named(page: str) -> list[str]:
    """The names in the second column of the hand-written tables."""
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ") and line.count("|") > 3]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row[2])]


def only_here() -> str:
    known = set(named(PAGE.read_text(encoding="utf-8")))
    pages = {name: page for page, kind in (("primitives", PRIMITIVES), ("draws", DRAWS)) for name in kind}
    found = [f"[{code(n)}](reference/{page}.md#{n})" for n, page in sorted(pages.items()) if n not in known]
    return "\n".join(f"{link}," for link in found).removesuffix(",") + "."
