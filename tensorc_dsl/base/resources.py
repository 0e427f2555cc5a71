"""The files that ship with the package, and the folder for files that can be made again.

In a wheel the grammar, the standard library and the pages about errors are in `tensorc_dsl/_data/`; in a checkout, in folders
of the repository.
"""

from __future__ import annotations

import re
from functools import cache
from os.path import isdir, isfile
from pathlib import Path


@cache
def _data(path: str) -> Path:
    """The file or folder of the checkout; in a wheel, that of its data with the same last part."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "_data" / Path(path).name
    return shipped if shipped.exists() else package.parent / path


@cache
def grammar_text() -> str:
    """The text of `tsched.lark`."""
    return (_data("grammar") / "tsched.lark").read_text(encoding="utf-8")


@cache
def glossary() -> tuple[tuple[tuple[str, ...], str], ...]:
    """The rows of `docs/glossary.md`: the terms that a row defines, and its text."""
    rows = re.findall(r"^\| (\*.+?) \| (.+) \|$", _data("docs/glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    return tuple((tuple(re.findall(r"\*([^*]+)\*", head)), text.replace(r"\|", "|")) for head, text in rows)


def stdlib_root() -> Path:
    """The folder that `use std.…` reads from."""
    return _data("stdlib")


def cache_path(name: str) -> Path | None:
    """A file in the user's cache folder; None if there is no such folder and it cannot be made."""
    import platformdirs  # a late import: nothing else at start-up needs it

    try:
        return platformdirs.user_cache_path("tensorc-dsl", ensure_exists=True) / name
    except OSError:
        return None


def stdlib_files(path: tuple[str, ...]) -> tuple[tuple[str, Path], ...]:
    """The files of the standard library behind a dotted path, each with its name in messages.

    `("cpu",)` is the file `cpu.tsched`, or all files of the folder `cpu`.
    """
    place = stdlib_root().joinpath(*path)
    # `os.path` also accepts names that no file can have.
    if path and isfile(file := place.with_suffix(".tsched")):
        found = [file]
    else:
        found = sorted(place.glob("*.tsched")) if isdir(place) else []
    return tuple((f"std/{f.relative_to(stdlib_root()).as_posix()}", f) for f in found)


@cache
def stdlib_digests() -> dict[str, str]:
    """By their names in messages the SHA-256 of the texts of the library's files in which nothing is wrong."""
    try:
        lines = (stdlib_root() / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    return {f"std/{name}": digest for digest, name in (line.split("  ", 1) for line in lines)}


def stdlib_names(path: tuple[str, ...]) -> tuple[str, ...]:
    """The files and folders of the standard library in the folder behind a dotted path."""
    place = stdlib_root().joinpath(*path)
    return (
        tuple(sorted({f.stem for f in place.glob("*") if f.is_dir() or f.suffix == ".tsched"})) if isdir(place) else ()
    )


def error_page(code: str) -> str:
    """The page about an error or a warning, as Markdown. Raises KeyError for an unknown code."""
    if code not in error_titles():
        raise KeyError(code)
    return (_data("docs/errors") / f"{code}.md").read_text(encoding="utf-8")


@cache
def error_titles() -> dict[str, str]:
    """The title of the page of every code, errors before warnings."""
    titles: dict[str, str] = {}
    for file in sorted(_data("docs/errors").glob("[EW]*.md")):
        with file.open(encoding="utf-8") as page:
            titles[file.stem] = page.readline().partition(": ")[2].strip()
    return titles
