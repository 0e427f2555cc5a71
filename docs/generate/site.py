"""Writes the sources of the documentation site: `python -m docs.generate.site FOLDER`, for MkDocs to build.

Afterwards `FOLDER/pages` has the README, all pages of `docs/`, and the files that they link to, under the paths of the
repository, so links lead to the same file in both. Pages of Markdown and pictures are copied. A file of another kind becomes
a page that shows it, a folder without a README a page that lists it. `pygments.css` colours the fences.
`FOLDER/mkdocs.yml` has the navigation, made from the tables of docs/README.md, and inherits the other settings. A link to a
file that does not exist is an error.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from pygments.formatters import HtmlFormatter

from docs.generate.all import SITE_PARTS
from docs.generate.links import relinked
from docs.generate.pages import with_lists

ROOT = Path(__file__).resolve().parent.parent.parent
START, MAP, REFERENCE = "README.md", "docs/README.md", "docs/reference/README.md"

PICTURES = (".png", ".svg")

LANGUAGES = {"py": "python", "ll": "llvm", "yml": "yaml"}
"""The languages of fences by suffix; other suffixes name the language themselves."""

Pages = dict[str, str]
"""The text of each page by its path in the repository."""


class LostLinkError(Exception):
    """A link to a file that does not exist."""


def pages(root: Path) -> Pages:
    """The pages of the site of the repository in `root`: its documentation, and every file that a page links to."""
    waiting = [START, *(p.relative_to(root).as_posix() for p in sorted((root / "docs").rglob("*.md")))]
    out: Pages = {}
    while waiting:
        path = waiting.pop()
        if path not in out:
            out[path], reached = _page(root, path)
            waiting += reached
    return dict(sorted(out.items()))


def _page(root: Path, path: str) -> tuple[str, list[str]]:
    """The page at a path of the site, and the pages that it links to."""
    reached: list[str] = []

    def linked(target: str) -> str:
        file, mark, heading = target.partition("#")
        if not file:
            return target
        place = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
        if place.startswith("..") or not (root / place).exists():
            raise LostLinkError(f"{path}: the link to {target} leads nowhere")
        if place.endswith(PICTURES):
            return target
        reached.append(page_of(root, place))
        return f"{posixpath.relpath(reached[-1], posixpath.dirname(path) or '.')}{mark}{heading}"

    file, folder = root / path, root / posixpath.dirname(path)
    if file.is_file():
        text = with_lists(without_options(file.read_text(encoding="utf-8")), SITE_PARTS)
    elif posixpath.basename(path) == "README.md":
        text = listing(posixpath.dirname(path), folder)
    else:
        text = shown(path.removesuffix(".md"), file.with_suffix("").read_text(encoding="utf-8"))
    return relinked(text, linked), reached


def page_of(root: Path, place: str) -> str:
    """The path of the page for a file or a folder of the repository."""
    if (root / place).is_dir():
        return posixpath.join(place, "README.md")
    return place if place.endswith(".md") else f"{place}.md"


def without_options(page: str) -> str:
    """The page with the options of fences removed: they are for the tests, not for readers."""
    return re.sub(r"^(`{3,}\w+) [^`\n]*$", r"\1", page, flags=re.MULTILINE)


def listing(name: str, folder: Path) -> str:
    """A page for a folder."""
    inside = sorted(p for p in folder.iterdir() if not p.name.startswith((".", "__pycache__")))
    return "\n".join([f"# {name}", "", *(f"- [{p.name}]({p.name})" for p in inside), ""])


def shown(name: str, text: str) -> str:
    """A page that shows a file, in a fence with more backticks than the file has in a row."""
    fence = "`" * max(3, *(len(m) + 1 for m in re.findall(r"`+", text)), 3)
    suffix = Path(name).suffix.removeprefix(".")
    return f"# {name}\n\n{fence}{LANGUAGES.get(suffix, suffix or 'text')}\n{text.rstrip()}\n{fence}\n"


def rows(page: str) -> Iterator[tuple[str, str]]:
    """The links in the tables of a page: their labels and targets."""
    for line in page.splitlines():
        if line.startswith("| "):
            yield from re.findall(r"\[([^]]+)\]\(([^)\s]+)\)", line)


def navigation(site: Pages) -> list[dict[str, str | list[dict[str, str]]]]:
    """The navigation: the start page, the map, the pages that the map links to, and the reference."""

    def named(path: str) -> list[dict[str, str]]:
        folder = posixpath.dirname(path)
        # Only a page's text is Markdown; in the navigation a label stands as it is.
        return [
            {label.replace("`", ""): posixpath.normpath(posixpath.join(folder, file))}
            for label, file in rows(site[path])
        ]

    return [{"Start": START}, {"Map": MAP}, {"Pages": named(MAP)}, {"Reference": named(REFERENCE)}]


def write(root: Path, folder: Path) -> int:
    """Write the site's sources. Returns the number of pages."""
    site = pages(root)
    for path, text in site.items():
        file = folder / "pages" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for picture in (p for p in (root / "docs").rglob("*") if p.suffix in PICTURES):
        copy = folder / "pages" / picture.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, copy)
    # The background is the theme's; only the rules inside of `.codehilite` are wanted.
    formatter = cast("Any", HtmlFormatter(style="friendly", nobackground=True))  # Pygments has few types
    (folder / "pages" / "pygments.css").write_text(formatter.get_style_defs(".codehilite") + "\n", encoding="utf-8")
    above = os.path.relpath(root / "mkdocs.yml", folder)
    config = {"INHERIT": above, "docs_dir": "pages", "site_dir": "html", "nav": navigation(site)}
    # JSON is YAML too.
    (folder / "mkdocs.yml").write_text(json.dumps(config, indent=2, ensure_ascii=False), encoding="utf-8")
    return len(site)


if __name__ == "__main__":
    try:
        print(f"{write(ROOT, Path(sys.argv[1]))} pages")
    except LostLinkError as e:
        sys.exit(str(e))
