"""The table of primitives and draws that the tables beside TensorIR do not name."""

from __future__ import annotations

import re

from docs.generate.pages import FOLDER
from tensorc_dsl.report.entries.markdown import code, table
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.trace.draws import DRAWS

PAGE = FOLDER.parent / "tensorir.md"


def named(page: str) -> list[str]:
    """The names in the second column of the hand-written tables."""
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ") and line.count("|") > 3]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row[2])]


def only_here() -> str:
    known = set(named(PAGE.read_text(encoding="utf-8")))
    docs = {name: declared.doc for kind in (PRIMITIVES, DRAWS) for name, declared in kind.items()}
    first = {name: " ".join(doc.partition("\n\n")[0].split()) for name, doc in sorted(docs.items())}
    return table(["here", "says"], [[code(name), says] for name, says in first.items() if name not in known])
