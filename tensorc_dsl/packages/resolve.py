"""Resolves the path of a `use` to files, and reports paths with several files.

Places are searched in this order: the folder of the file that says `use`, the project's module paths, `-I`, TSCHED_PATH,
installed packages. Two different files for one path are an error whatever the order, so that no file can be put in front
of another's. `std` is looked up in the standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from tensorc_dsl.check.problems import AMBIGUOUS, UNRESOLVED
from tensorc_dsl.check.uses import Found, standard_files
from tensorc_dsl.diagnostic import Note, TschedError
from tensorc_dsl.packages.files import SUFFIX, Disk, Files
from tensorc_dsl.packages.installed import installed
from tensorc_dsl.packages.places import SearchFolder, from_environment, given, of_project, shown
from tensorc_dsl.report.inputs import STDIN
from tensorc_dsl.source import Source
from tensorc_dsl.syntax.names import near

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
