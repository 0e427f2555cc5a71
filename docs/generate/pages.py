"""Pages with generated parts: hand-written prose, and pairs of markers that name the part between them.

<!-- generated: name -->
…
<!-- end: name -->

A long list is made for the site only, and its page in the repository has one marker, `<!-- on the site: name -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "reference"

PAGES = (
    FOLDER.parent.parent / "README.md",
    FOLDER.parent / "README.md",
    FOLDER.parent / "images.md",
    FOLDER.parent / "maths.md",
    FOLDER.parent / "models.md",
    FOLDER.parent / "operators.md",
    FOLDER.parent / "tensorir.md",
    FOLDER.parent / "decisions" / "README.md",
    *sorted(FOLDER.glob("*.md")),
)
"""The pages with generated parts."""

Part = Callable[[], str]

_PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)

_ON_SITE = re.compile(r"<!-- on the site: ([\w-]+) -->")


def filled(page: str, parts: Mapping[str, Part]) -> str:
    """The page with every generated part as it is now. Raises KeyError for a marker that has no function."""
    return _PART.sub(lambda m: f"{m[1]}\n{parts[m[2]]().strip()}\n\n{m[3]}", page)


def markers(page: str) -> list[str]:
    """The names of the generated parts of a page, in order."""
    return [m[2] for m in _PART.finditer(page)]


def with_lists(page: str, parts: Mapping[str, Part]) -> str:
    """The page as the site has it: with the lists that are made for the site only. Raises KeyError for an unknown marker."""
    return _ON_SITE.sub(lambda m: parts[m[1]]().strip(), page)


def site_markers(page: str) -> list[str]:
    """The names of the lists that the site adds to a page, in order."""
    return _ON_SITE.findall(page)
