"""Lists what a `use` can import from every place, and writes the files of a new package of modules."""

from __future__ import annotations

import keyword
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.resources import stdlib_root
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.problems import UNRESOLVED
from tensorc_dsl.faces.packages.files import SUFFIX, Disk
from tensorc_dsl.faces.packages.resolve import GROUP, Resolver, SearchFolder, StrPath, shown
from tensorc_dsl.faces.report.files import read_source
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.parse import parse

# Lists what a `use` can import: the modules, spaces and computes of every place.


KINDS: dict[type, str] = {t.ModuleDef: "module", t.SpaceDef: "space", t.ComputeDef: "compute"}


@dataclass(frozen=True, slots=True)
class Item:
    """An item that can be used: `use` is the path of its file, `where` is file:line, `place` the reason to look there."""

    use: str
    name: str
    kind: str
    doc: str
    where: str
    place: str

    @property
    def path(self) -> str:
        return f"{self.use}.{self.name}"


@dataclass(frozen=True, slots=True)
class Listing:
    """All items in order of the places and of their files, and the files that cannot be read."""

    items: tuple[Item, ...]
    broken: tuple[str, ...]


def reachable(include: Sequence[StrPath] = ()) -> Listing:
    """All items that a file in the working folder can use. Raises TschedError (E0909)."""
    here, library = SearchFolder(Path(), "this folder"), SearchFolder(stdlib_root(), "std", ("std",))
    places = [here, *Resolver("-", include).shared, library]
    items: list[Item] = []
    broken: list[str] = []
    seen: set[Path] = set()
    for place in places:
        for path, file in _files(place):
            if file.resolve() in seen:
                continue
            seen.add(file.resolve())
            try:
                # The same check as for a `use`: files that it refuses to read are not listed.
                if place.find(path, Disk()) is not None:
                    items += _items(path, file, place.what)
            except TschedError:
                broken.append(shown(file))
    return Listing(tuple(items), tuple(broken))


def _files(place: SearchFolder) -> Iterator[tuple[tuple[str, ...], Path]]:
    """The files below a place, each with its path in a `use`."""
    for at, folders, files in os.walk(place.folder):
        folders[:] = sorted(f for f in folders if f.isidentifier() and not Path(at, f, "pyvenv.cfg").exists())
        inside = Path(at).relative_to(place.folder).parts
        for f in sorted(files):
            if f.endswith(SUFFIX):
                yield (*place.name, *inside, f.removesuffix(SUFFIX)), Path(at, f)


def _places(file: Path) -> Iterator[tuple[str, str]]:
    """The names that a `use` can import from a file, with their places."""
    source = read_source(file, shown(file))
    for item in parse(source).items:
        if not isinstance(item, t.UseDecl | t.TaskDef | t.ProgramDef):
            yield item.name, f"{source.name}:{source.line_column(item.name.span.start)[0]}"


def _items(path: tuple[str, ...], file: Path, what: str) -> Iterator[Item]:
    source = read_source(file, shown(file))
    for item in parse(source).items:
        if isinstance(item, t.ModuleDef | t.SpaceDef | t.ComputeDef):
            line, _ = source.line_column(item.name.span.start)
            doc = item.doc.strip().partition("\n")[0]
            yield Item(".".join(path), item.name, KINDS[type(item)], doc, f"{source.name}:{line}", what)


def spellings(item: Item) -> tuple[str, ...]:
    """The names for an item: with its file, with its folder, and alone."""
    folder = item.use.rpartition(".")[0]
    return (item.path, *([f"{folder}.{item.name}"] if folder else []), item.name)


def used(text: str, include: Sequence[StrPath] = ()) -> tuple[str, ...]:
    """The places of everything that `use TEXT` imports into a file in this folder: `file`, or `file:line` of a named item.

    The last part of a path may be an item, too: `std.cpu.default` is `std.cpu.{default}`. Empty if there is no such path;
    raises TschedError if a `use` finds several.
    """
    try:
        items = parse(Source("-", f"use {text}\n")).items
    except TschedError:
        return ()
    match items:
        case (t.UseDecl(path=path, names=names),):
            pass
        case _:
            return ()
    resolver = Resolver("-", include)
    tried = [(path, names)] if names or len(path) == 1 else [(path, names), (path[:-1], path[-1:])]
    for at, wanted in tried:
        try:
            files = resolver.locate(at)
        except TschedError as e:
            if e.diagnostics[0].code != UNRESOLVED.code:
                raise
            continue
        if not wanted:
            return tuple(map(shown, files))
        found = dict(place for f in files for place in _places(f))
        if all(n in found for n in wanted):
            return tuple(found[n] for n in wanted)
    return ()


def shortest(listing: Listing) -> dict[Item, str]:
    """The shortest unambiguous name of each item: with its folder if no other item has that name, else with its file."""
    count = Counter(spelled for i in listing.items for spelled in set(spellings(i)))
    return {i: next((s for s in spellings(i)[-2:0:-1] if count[s] == 1), i.path) for i in listing.items}


# The files of a new package of modules, as text.


_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{dashed}"
version = "0.1.0"
description = "Modules for tensorc-dsl."
requires-python = ">=3.11"
dependencies = ["tensorc-dsl"]

# `use {name}.tiles` reads `tiles.tsched` in the package that stands here; nothing of it is imported.
[project.entry-points."{group}"]
{name} = "{name}"

[tool.hatch.build.targets.wheel]
packages = ["{name}"]
"""

_MODULE = """\
/// Cut the last loop of `b` into vectors, and run the first one on all cores.
module vectors(b: Block, width: int = 8)
when b.is_injective and len(b.loops) > 1
{{
    let [outer, inner] = split(b.loops[-1], [_, width], partial=true)
    vectorize(inner)
    parallel(b.loops[0])
}}

/// All that this package does with a block.
space {name}_cpu for llvm {{
    vectors
}}
"""

_TEST = '''\
"""The modules of this package, tried on a small task. Install the package first: `pip install -e .`"""

from pathlib import Path

import tensorc_dsl

TASK = """\\
use {name}.tiles.{{{name}_cpu}}

compute scale(A: f32[M, N]) -> B: f32[M, N] {{
    B[i, j] = A[i, j] * 2.0
}}

task small = scale(M=16, N=40) with {name}_cpu
"""


def test_a_schedule_applies(tmp_path: Path) -> None:
    file = tmp_path / "small.tsched"
    file.write_text(TASK, encoding="utf-8")
    task = tensorc_dsl.load(file)["small"]
    trace = task.check()
    assert "vectorize" in trace.text
'''


def good_name(name: str) -> bool:
    """Whether a package of modules can have this name: valid in Python and in `use`, and not one of ours."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and name not in ("std", "tensorc_dsl")


def skeleton(name: str) -> dict[str, str]:
    """The files of the package by path."""
    facts = {"name": name, "dashed": name.replace("_", "-"), "group": GROUP}
    return {
        "pyproject.toml": _PROJECT.format(**facts),
        f"{name}/__init__.py": "",
        f"{name}/tiles.tsched": _MODULE.format(**facts),
        f"tests/test_{name}.py": _TEST.format(**facts),
    }
