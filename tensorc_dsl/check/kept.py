"""What files use of the standard library is loaded once in a process, and again when one of its files has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.loader import Loader, Parse
from tensorc_dsl.check.uses import Found, Resolve
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.parse import used_items

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
