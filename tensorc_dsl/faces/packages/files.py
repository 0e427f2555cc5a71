"""The layer through which files are found and read: the disk, or an overlay such as the open texts of an editor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.report.files import StrPath, read_source

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
        return with_others(self._below.listed(folder), folder, self._texts)


def with_others(stored: Iterable[Path], folder: Path, others: Iterable[Path]) -> tuple[Path, ...]:
    """The stored files of a folder and those of the others that it would have, in the order of their names."""
    real = Path(os.path.realpath(folder))
    found = {f.name: f for f in stored}
    found.update({f.name: folder / f.name for f in others if f.parent == real and f.suffix == SUFFIX})
    return tuple(found[name] for name in sorted(found))
