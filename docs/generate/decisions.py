"""The table of decisions, with the status and date of each."""

from __future__ import annotations

import re
from pathlib import Path

from docs.generate.pages import FOLDER
from tensorc_dsl.faces.report.entries import table

DECISIONS = FOLDER.parent / "decisions"

_HEAD = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\n"
    r"Status: (?P<status>accepted|superseded by \[\d+\]\((?P<by>[\w.-]+\.md)\)), (?P<date>\d{4}-\d\d-\d\d)\n\n"
)


def files() -> list[Path]:
    """All decisions, in order."""
    return sorted(DECISIONS.glob("[0-9]*.md"))


def row(name: str, page: str) -> tuple[str, str, str]:
    """The table row of one decision. Raises ValueError if its page does not begin with a title, a status and a date."""
    found = _HEAD.match(page)
    if found is None:
        raise ValueError(
            f"{name}: a decision begins with `# N. Title`, an empty line, and `Status: accepted, YYYY-MM-DD` "
            "or `Status: superseded by [N](FILE), YYYY-MM-DD`"
        )
    if int(found["number"]) != int(name[:4]):
        raise ValueError(f"{name}: the title says that this is decision {found['number']}")
    return f"[{found['number']}. {found['title']}]({name})", found["status"], found["date"]


def decisions() -> str:
    return table(["decision", "status", "since"], (row(f.name, f.read_text(encoding="utf-8")) for f in files()))
