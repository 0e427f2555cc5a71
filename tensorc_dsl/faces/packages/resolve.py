"""Resolves the path of a `use` to files in its places: folders, module paths, installed packages. A path with several files
is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, cast

from tensorc_dsl.base.diagnostic import Note, TschedError, problem
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.problems import AMBIGUOUS, UNRESOLVED
from tensorc_dsl.check.uses import Found, standard_files
from tensorc_dsl.faces.packages.files import SUFFIX, Disk, Files
from tensorc_dsl.faces.report.files import STDIN
from tensorc_dsl.syntax.names import near

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


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


@dataclass(frozen=True, slots=True)
class SearchFolder:
    """A folder in which a `use` is looked up. `what` is the reason; `name` is the first part of its files' paths, or empty.

    `use vendor.kernels` means `kernels.tsched` in a place with the name `vendor`, and `vendor/kernels.tsched` in one
    without a name.
    """

    folder: Path
    what: str
    name: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{shown(self.folder)} ({self.what})"

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
            raise TschedError(LEADS_OUT(None, link=shown(path), place=self))

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


def shown(path: Path) -> str:
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
    return TschedError(SETTINGS(None, file=shown(file), message=message, repair=repair))


# Finds installed Python packages that ship modules, by their entry points, without importing them.


GROUP = "tensorc_dsl.modules"


def installed() -> Iterator[SearchFolder]:
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


StrPath = str | os.PathLike[str]


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
        return (*of_project(self.folder), *given(self.include), *from_environment(), *installed())

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
            notes = tuple(Note("note", f"{shown(at)}: {place.what}") for place, at in found.values())
            raise TschedError(AMBIGUOUS(None, notes=notes, path=dotted))
        (only,) = found.values()
        return only

    def _read(self, file: Path, package: str) -> Source:
        source = self._source(file, shown(file))
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
