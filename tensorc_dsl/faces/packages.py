"""Resolves the path of a `use` to files: folders, module paths, installed packages; and lists what a `use` can import.

Nothing here interprets the content of a file. Files are read from the disk, or from an overlay such as the open texts of
an editor. A path with several files is an error.
"""

from __future__ import annotations

import keyword
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Protocol, cast

from tensorc_dsl.base.diagnostic import Note, TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.resources import stdlib_root
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.problems import AMBIGUOUS, UNRESOLVED
from tensorc_dsl.check.uses import Found, standard_files
from tensorc_dsl.faces.report.files import STDIN, StrPath, read_source
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import near
from tensorc_dsl.syntax.parse import parse

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SUFFIX = ".tsched"


class Files(Protocol):
    """The interface of the layer through which files are found and read."""

    def read(self, path: StrPath, name: str | None = None) -> Source:
        """The text of a file; `name` is its name in messages. Raises TschedError (E0901, E0902, E0917)."""
        ...

    def has(self, path: Path) -> bool:
        """Whether there is such a file."""
        ...

    def listed(self, folder: Path) -> tuple[Path, ...]:
        """The `.tsched` files of a folder, in the order of their names; none if there is no such folder."""
        ...


class Disk:
    """Files as they are stored."""

    def read(self, path: StrPath, name: str | None = None) -> Source:
        return read_source(path, name)

    def has(self, path: Path) -> bool:
        return os.path.isfile(path)

    def listed(self, folder: Path) -> tuple[Path, ...]:
        # `os.path` also accepts names that no file can have.
        return tuple(sorted(f for f in folder.glob(f"*{SUFFIX}") if f.is_file())) if os.path.isdir(folder) else ()


class Overlay:
    """Files of which some have another text, or are not stored: `texts`, by path, copied when the overlay is made."""

    def __init__(self, texts: Mapping[StrPath, str], below: Files) -> None:
        self._texts = {Path(path).resolve(): text for path, text in texts.items()}
        self._below = below

    def read(self, path: StrPath, name: str | None = None) -> Source:
        text = self._texts.get(Path(path).resolve())
        return self._below.read(path, name) if text is None else Source.of(text.encode(), name or str(path))

    def has(self, path: Path) -> bool:
        return Path(os.path.realpath(path)) in self._texts or self._below.has(path)

    def listed(self, folder: Path) -> tuple[Path, ...]:
        return with_unsaved_files(self._below.listed(folder), folder, self._texts)


def with_unsaved_files(stored: Iterable[Path], folder: Path, others: Iterable[Path]) -> tuple[Path, ...]:
    """The stored files of a folder and those of the others that it would have, in the order of their names."""
    real = Path(os.path.realpath(folder))
    found = {f.name: f for f in stored}
    found.update({f.name: folder / f.name for f in others if f.parent == real and f.suffix == SUFFIX})
    return tuple(found[name] for name in sorted(found))


# Places: the folders in which a `use` is looked up.


VARIABLE = "TSCHED_PATH"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@problem(
    "E0232",
    "`{link}` is a link that leads out of {place}",
    help="copy what it leads to, or give the folder that is in with `-I`",
)
def LEADS_OUT(*, link: str, place: object) -> None: ...
@problem("E0909", "{file}: {message}")
def SETTINGS(*, file: str, message: str, repair: str) -> None: ...


@frozen
class SearchFolder:
    """A folder in which a `use` is looked up. `what` is the reason; `name` is the first part of its files' paths, or empty.

    `use vendor.kernels` means `kernels.tsched` in a place with the name `vendor`, and `vendor/kernels.tsched` in one
    without a name.
    """

    folder: Path
    what: str
    name: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{path_in_messages(self.folder)} ({self.what})"

    def find(self, path: tuple[str, ...], files: Files) -> Path | None:
        """The file or the folder for the path of a `use`. Nothing outside of the place is read.

        Raises TschedError (E0232) for a link that leads out of the place.
        """
        inside = path[len(self.name) :]
        if path[: len(self.name)] != self.name or not all(map(_IDENTIFIER.fullmatch, inside)):
            return None
        at = self.folder.joinpath(*inside)
        file = at.with_name(at.name + SUFFIX)
        if inside and files.has(file):
            self._require_inside(file)
            return file
        if os.path.isdir(at):
            self._require_inside(at)
        listed = files.listed(at)
        for found in listed:
            self._require_inside(found)
        return at if listed else None

    def _holds(self, path: Path) -> bool:
        # `Path.resolve` fails on cyclic links; `os.path.realpath` does not.
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.folder))

    def _require_inside(self, path: Path) -> None:
        if not self._holds(path):
            raise TschedError(LEADS_OUT(None, link=path_in_messages(path), place=self))

    def names(self, path: tuple[str, ...], files: Files) -> list[str]:
        """The possible names in place of the last part of the path."""
        if path[: len(self.name)] != self.name:
            return list(self.name[:1]) if len(path) == 1 else []
        parent = self.folder.joinpath(*path[len(self.name) : -1])
        if len(path) <= len(self.name) or not self._holds(parent):
            return []
        inside = filter(self._holds, parent.glob("*") if os.path.isdir(parent) else ())
        folders = (p for p in inside if p.suffix != SUFFIX and files.listed(p))
        return [p.stem for p in (*filter(self._holds, files.listed(parent)), *folders)]


def path_in_messages(path: Path) -> str:
    """The path in messages: relative to the working folder if it is inside."""
    try:
        return str(Path(os.path.abspath(path)).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def given(folders: Sequence[str | os.PathLike[str]]) -> Iterator[SearchFolder]:
    """The places of the option `-I`."""
    for folder in folders:
        yield SearchFolder(Path(folder), "-I")


def from_environment() -> Iterator[SearchFolder]:
    """The places of the variable TSCHED_PATH, separated like those of PATH."""
    for folder in os.environ.get(VARIABLE, "").split(os.pathsep):
        if folder:
            yield SearchFolder(Path(folder), VARIABLE)


def of_project(folder: Path) -> Iterator[SearchFolder]:
    """The module paths of the project that `folder` lies in.

    They are listed in the nearest `pyproject.toml` at or above the folder that has a table `[tool.tensorc-dsl]`, as
    `module-paths`, relative to that file. Raises TschedError (E0909) if they are not folders of the project.
    """
    here = Path(os.path.abspath(folder))
    for above in (here, *here.parents):
        file = above / "pyproject.toml"
        if not file.is_file():
            continue
        table = _table(file)
        if table is None:
            continue
        paths = table.get("module-paths", [])
        if unknown := sorted(set(table) - {"module-paths"}):
            raise _settings(file, f"there is no setting `{unknown[0]}`", 'there is only `module-paths = ["…"]`')
        if not isinstance(paths, list) or not all(isinstance(p, str) for p in cast(list[Any], paths)):
            raise _settings(file, "`module-paths` is not a list of strings", 'write `module-paths = ["modules"]`')
        for p in cast(list[str], paths):
            if PurePath(p).is_absolute() or not (above / p).resolve().is_relative_to(above.resolve()):
                raise _settings(
                    file, f"module path `{p}` leads out of the project", f"give folders outside with `-I` or {VARIABLE}"
                )
            yield SearchFolder(above / p, "module-paths of pyproject.toml")
        return


def _table(file: Path) -> dict[str, Any] | None:
    import tomllib  # only where there is a project

    try:
        text = file.read_text(encoding="utf-8")
        if "tensorc-dsl" not in text:
            return None
        return tomllib.loads(text).get("tool", {}).get("tensorc-dsl")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise _settings(file, str(e), "repair the file") from e


def _settings(file: Path, message: str, repair: str) -> TschedError:
    return TschedError(SETTINGS(None, file=path_in_messages(file), message=message, repair=repair))


# Finds installed Python packages that ship modules, by their entry points, without importing them.


GROUP = "tensorc_dsl.modules"


def installed_folders() -> Iterator[SearchFolder]:
    """The place of each entry point of the group `tensorc_dsl.modules`, or several places for a namespace package.

    The entry point `vendor = "vendor_kernels.tsched"` means that `use vendor.…` reads the folder `tsched` of the package
    `vendor_kernels`.
    """
    from importlib.metadata import entry_points  # slow to load, and most files use no package

    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        for folder in _folders(point):
            yield SearchFolder(folder, f"package {_distribution(point)}", (point.name,))


def _folders(point: EntryPoint) -> list[Path]:
    package, *below = point.value.strip().split(".")
    # For a name without a dot this finds the package without running any of it.
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return []
    locations = (spec.submodule_search_locations or []) if spec is not None else []
    return [Path(location).joinpath(*below) for location in locations]


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


# Resolves the path of a `use` to files, and reports paths with several files.
#
# Places are searched in this order: the folder of the file that says `use`, the project's module paths, `-I`, TSCHED_PATH,
# installed packages. Two different files for one path are an error whatever the order, so that no file can be put in front
# of another's. `std` is looked up in the standard library only.


class Resolver:
    """The `Resolve` function for one file and all files that it uses; `include` are the folders of `-I`.

    Places are listed when the first `use` asks for more than `std`; files are read once, through `files`.
    """

    def __init__(self, file: StrPath, include: Sequence[StrPath] = (), files: Files | None = None) -> None:
        name = os.fspath(file)
        self.file = Path() / "<stdin>" if name == STDIN else Path(name)
        self.folder = self.file.parent
        self.include = include
        self.files = files or Disk()
        self._homes: dict[str, tuple[Path, str]] = {}
        self._sources: dict[Path, Source] = {}
        self._standard: dict[tuple[str, ...], Found] = {}

    @cached_property
    def shared(self) -> tuple[SearchFolder, ...]:
        """The places for every file, in order. Raises TschedError (E0909)."""
        return (*of_project(self.folder), *given(self.include), *from_environment(), *installed_folders())

    def __call__(self, path: tuple[str, ...], user: Source) -> Found:
        if not self._sources:  # the first source is the file itself
            self._sources[self.file.resolve()] = user
            self._homes[user.name] = (self.folder, "")
        if path[0] == "std":
            if path not in self._standard:
                sources = tuple(self._source(file, name) for name, file in standard_files(path))
                self._standard[path] = Found(".".join(path), sources)
            return self._standard[path]
        folder, package = self._homes.get(user.name, (None, ""))
        own = (SearchFolder(folder, f"the folder of {user.name}"),) if folder is not None else ()
        place, at = self._find(path, own)
        dotted = ".".join(path)
        name = f"{package}.{dotted}" if package and place in own else dotted
        if at.suffix == SUFFIX:
            return Found(name, (self._read(at, name.rpartition(".")[0]),))
        return Found(name, tuple(self._read(file, name) for file in self.files.listed(at)))

    def locate(self, path: tuple[str, ...]) -> tuple[Path, ...]:
        """The files that a `use` of the path imports. Raises TschedError as the `use` does."""
        if path[0] == "std":
            return tuple(file for _, file in standard_files(path))
        _, at = self._find(path, (SearchFolder(self.folder, f"the folder of {self.file.name}"),))
        return (at,) if at.suffix == SUFFIX else self.files.listed(at)

    def _find(self, path: tuple[str, ...], own: tuple[SearchFolder, ...]) -> tuple[SearchFolder, Path]:
        """The only file or folder for a path, and its place. Raises TschedError (E0232, E0234)."""
        found: dict[Path, tuple[SearchFolder, Path]] = {}
        for place in (*own, *self.shared):
            if (at := place.find(path, self.files)) is not None:
                found.setdefault(at.resolve(), (place, at))
        dotted = ".".join(path)
        if not found:
            raise TschedError(UNRESOLVED(None, notes=self._looked(path, (*own, *self.shared)), path=dotted))
        if len(found) > 1:
            notes = tuple(Note("note", f"{path_in_messages(at)}: {place.what}") for place, at in found.values())
            raise TschedError(AMBIGUOUS(None, notes=notes, path=dotted))
        (only,) = found.values()
        return only

    def _read(self, file: Path, package: str) -> Source:
        source = self._source(file, path_in_messages(file))
        self._homes.setdefault(source.name, (file.parent, package))
        return source

    def _source(self, file: Path, name: str) -> Source:
        real = file.resolve()
        if real not in self._sources:
            self._sources[real] = self.files.read(file, name)
        return self._sources[real]

    def path_of(self, source: Source) -> Path | None:
        """The file from which a text was read; None for a text that this resolver did not read."""
        return next((path for path, known in self._sources.items() if known == source), None)

    def _looked(self, path: tuple[str, ...], places: Sequence[SearchFolder]) -> tuple[Note, ...]:
        lines = [f"{place}{'' if place.folder.is_dir() else ': there is no such folder'}" for place in places]
        looked = Note("note", "\n".join([f"looked for `{'/'.join(path)}{SUFFIX}` in", *lines]))
        return (looked, *near(path[-1], {name for place in places for name in place.names(path, self.files)}))


# Lists what a `use` can import: the modules, spaces and computes of every place.


KINDS: dict[type, str] = {t.ModuleDef: "module", t.SpaceDef: "space", t.ComputeDef: "compute"}


@frozen
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


@frozen
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
                broken.append(path_in_messages(file))
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
    source = read_source(file, path_in_messages(file))
    for item in parse(source).items:
        if not isinstance(item, t.UseDecl | t.TaskDef | t.ModelDef | t.ProgramDef):
            yield item.name, f"{source.name}:{source.line_column(item.name.span.start)[0]}"


def _items(path: tuple[str, ...], file: Path, what: str) -> Iterator[Item]:
    source = read_source(file, path_in_messages(file))
    for item in parse(source).items:
        if isinstance(item, t.ModuleDef | t.SpaceDef | t.ComputeDef):
            line, _ = source.line_column(item.name.span.start)
            doc = item.doc.strip().partition("\n")[0]
            yield Item(".".join(path), item.name, KINDS[type(item)], doc, f"{source.name}:{line}", what)


def item_spellings(item: Item) -> tuple[str, ...]:
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
            return tuple(map(path_in_messages, files))
        found = dict(place for f in files for place in _places(f))
        if all(n in found for n in wanted):
            return tuple(found[n] for n in wanted)
    return ()


def shortest(listing: Listing) -> dict[Item, str]:
    """The shortest unambiguous name of each item: with its folder if no other item has that name, else with its file."""
    count = Counter(spelled for i in listing.items for spelled in set(item_spellings(i)))
    return {i: next((s for s in item_spellings(i)[-2:0:-1] if count[s] == 1), i.path) for i in listing.items}


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
