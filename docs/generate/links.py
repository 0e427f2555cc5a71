"""The links of Markdown pages, outside of code, and the anchors of headings."""

from __future__ import annotations

import re
from collections.abc import Callable

_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(rf"{_FENCE.pattern}|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def links(page: str) -> list[str]:
    """The targets of a page's links, in order, without links to other hosts."""
    found: list[str] = []

    def collect(target: str) -> str:
        found.append(target)
        return target

    relinked(page, collect)
    return found


def relinked(page: str, change: Callable[[str], str]) -> str:
    """The page with `change` applied to the target of every link that stays in the repository."""

    def one(m: re.Match[str]) -> str:
        return m[0] if "://" in m[1] else f"]({change(m[1])})"

    out: list[str] = []
    end = 0
    for code in _CODE.finditer(page):
        out += [_LINK.sub(one, page[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*out, _LINK.sub(one, page[end:])])


def anchors(page: str) -> set[str]:
    """The anchors of all headings of a page."""
    return {anchor(heading) for heading in _HEADING.findall(_FENCE.sub("", page))}


def anchor(heading: str, separator: str = "-") -> str:
    """The anchor of a heading, as GitHub makes it. MkDocs calls this function too, so links work in both."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)
