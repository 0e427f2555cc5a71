"""Loads files: a source and all files that it uses become one checked file, or findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

from tensorc_dsl.base.diagnostic import Diagnostic, Severity, TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.items import Memory
from tensorc_dsl.check.loader import Loader, Parse
from tensorc_dsl.check.problems import PROVED_BY_VERIFY
from tensorc_dsl.check.uses import Found, Resolve, standard
from tensorc_dsl.elaborate.names import Library
from tensorc_dsl.ir.program import Intrinsic, Program
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.parse import parse_items, used_items

# What files use of the standard library is loaded once in a process, and again when one of its files has changed.


Path = tuple[str, ...]

MOST = 64
"""Sequences of uses that are kept; those that begin alike share what they loaded."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A loader after a sequence of uses of the library, and the files that were behind each path."""

    loader: Loader
    read: Mapping[Path, tuple[Source, ...]]

    def holds(self, user: Source, resolve: Resolve) -> bool:
        """Whether the same files with the same texts are behind the paths now."""
        try:
            return all(resolve(path, user).sources == sources for path, sources in self.read.items())
        except TschedError:
            return False


_kept: dict[tuple[Path, ...], _Kept] = {}
"""By the uses, in their order: it decides the full names of modules."""


def loader_of(file: t.File, source: Source, resolve: Resolve, parsed: Parse) -> Loader:
    """A loader for the file that has loaded what its first uses name, as far as they name the standard library.

    It finds what a new one would find. A file of the library gets a new one. So does one with instructions, whose names are
    those of all files.
    """
    new = Loader(resolve, parsed)
    if any(isinstance(item, t.IntrinsicDef) for item in file.items):
        return new
    uses = [item.path for item in file.items if isinstance(item, t.UseDecl)]
    paths = tuple(tuple(map(str, path)) for path in takewhile(lambda path: path[0] == "std", uses))
    done = next((n for n in range(len(paths), 0, -1) if paths[:n] in _kept), 0)
    kept = _kept.get(paths[:done])
    if kept is not None and not kept.holds(source, resolve):
        _kept.clear()
        kept, done = None, 0
    for n in range(done, len(paths)):
        more = _after(kept, paths[n], source, resolve)
        if more is None:
            break
        if len(_kept) >= MOST:
            _kept.clear()
        _kept[paths[: n + 1]] = kept = more
    if kept is None or source.name in kept.loader.units:
        return new
    return kept.loader.copy(resolve, parsed)


def _after(kept: _Kept | None, path: Path, user: Source, resolve: Resolve) -> _Kept | None:
    """The library after one more use; None if there is no such path, or the library uses something else."""
    read = {} if kept is None else dict(kept.read)

    def noted(path: Path, user: Source) -> Found:
        found = resolve(path, user)
        read[path] = found.sources
        return found

    loader = Loader(noted, used_items) if kept is None else kept.loader.copy(noted, used_items)
    try:
        found = noted(path, user)
    except TschedError:
        return None
    for used in found.sources:
        loader.unit(used, found.name, ())
    return _Kept(loader, read) if all(p[0] == "std" for p in read) else None


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file with its own and its used items by name, and its findings.

    `modules` and `targets` also hold those that used items need, under their full names. `intrinsics` has the items of all
    files, since an instruction has the same name everywhere and a trace can contain it; `instructions` are those that they
    define."""

    file: t.File
    computes: dict[str, t.ComputeDef]
    modules: dict[str, t.ModuleDef]
    spaces: dict[str, t.SpaceDef]
    schedules: dict[str, t.ScheduleDef]
    tasks: dict[str, t.TaskDef]
    programs: dict[str, t.ProgramDef]
    targets: dict[str, t.TargetDef]
    intrinsics: dict[str, t.IntrinsicDef]
    instructions: tuple[Intrinsic, ...]
    constants: dict[str, t.ConstDef]
    uses: dict[tuple[str, ...], tuple[Source, ...]]
    """The files behind the path of each `use` of the file."""
    library: Library
    diagnostics: tuple[Diagnostic, ...]
    elaborated: dict[str, Program]
    """By the name of a task what it computes, unscheduled, of those with which nothing is wrong."""

    @property
    def source(self) -> Source:
        return self.file.source

    def program(self, task: str) -> Program:
        """The unscheduled program of a task without findings."""
        return self.elaborated[task]

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self.diagnostics if d.severity is Severity.ERROR)


def load_file(source: Source, resolve: Resolve = standard) -> CheckedFile:
    """The checked file, with every finding in it and in the files that it uses. Never raises TschedError.

    Of a text that does not parse, the items that do have names, but are not checked, since they may need the other
    items. Two files share the objects of what both use of the standard library.
    """
    own = parse_items(source)
    return _checked(loader_of(own.file, source, resolve, lambda s: own if s is source else used_items(s)), source)


class Versions:
    """Loads versions of one file one after another, as `load_file` does.

    What the versions use is loaded once: for other uses, or when a used file changes, there is another object. Items that a
    version shares with the one before are checked again only if something that they mention has changed.
    """

    def __init__(self, resolve: Resolve, parsed: Parse, memory: Memory) -> None:
        self._resolve = resolve
        self._parsed = parsed
        self._memory = memory
        self._used: Loader | None = None
        """Has loaded what the last version uses; None before there is one."""

    def load(self, source: Source) -> CheckedFile:
        """The checked file. Never raises TschedError."""
        # An instruction of the file may hide one of the same name in a used file, so then nothing is kept.
        file = self._parsed(source).file
        alone = any(isinstance(i, t.IntrinsicDef) for i in file.items)
        if alone or self._used is None:
            loader = loader_of(file, source, self._resolve, self._parsed)
        else:
            loader = self._used.copy(self._resolve, self._parsed)
        loader.memories[source.name] = self._memory
        checked = _checked(loader, source)
        if not alone:
            loader.forget(source)
            self._used = loader
        return checked


def _checked(loader: Loader, source: Source) -> CheckedFile:
    unit = loader.unit(source, "", ())
    n = unit.names
    modules, targets = n.modules | loader.used_modules, n.targets | loader.used_targets
    order = {source.name: 0}
    found = sorted(unit.found, key=lambda d: _position(d, order))
    diagnostics = tuple(dict.fromkeys(found))
    return CheckedFile(
        unit.file,
        n.computes,
        modules,
        n.spaces,
        n.schedules,
        n.tasks,
        n.programs,
        targets,
        loader.intrinsics,
        loader.instructions.of(loader.intrinsics.values()),
        n.constants,
        unit.uses,
        loader.library,
        diagnostics,
        n.elaborated,
    )


def load_source(source: Source, resolve: Resolve = standard) -> CheckedFile:
    """The checked file. Raises TschedError with all errors and warnings if there is an error.

    An error in the order or the bounds of a program that is written out does not count: only `verify` uses it, and says more.
    """
    checked = load_file(source, resolve)
    if any(d.code not in PROVED_BY_VERIFY for d in checked.errors):
        raise TschedError(*checked.diagnostics)
    return checked


def _position(d: Diagnostic, order: dict[str, int]) -> tuple[int, int]:
    """The sort key of a finding: findings of one file stand together, in text order."""
    if d.span is None:
        return (len(order) + 1, 0)
    return order.setdefault(d.span.source.name, len(order)), d.span.start
