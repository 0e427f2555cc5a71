"""The list of decisions, and what superseded those that no longer hold."""

from __future__ import annotations

import re
from pathlib import Path

from docs.generate.pages import FOLDER

DECISIONS = FOLDER.parent / "decisions"

_HEAD = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\n"
    r"Status: (?P<status>accepted|superseded by \[\d+\]\((?P<by>[\w.-]+\.md)\)), (?P<date>\d{4}-\d\d-\d\d)\n\n"
)


def files() -> list[Path]:
    """All decisions, in order."""
    return sorted(DECISIONS.glob("[0-9]*.md"))


def row(name: str, page: str) -> tuple[str, str, str]:
    """The link to one decision, its status and its date. Raises ValueError if its page does not begin with them."""
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
    """A list of links, with the status of each decision that is no longer accepted."""
    lines: list[str] = []
    for file in files():
        link, status, _ = row(file.name, file.read_text(encoding="utf-8"))
        lines.append(f"- {link}" if status == "accepted" else f"- {link}, {status}")
    return "\n".join(lines)
