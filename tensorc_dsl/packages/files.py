"""The layer through which files are read: the disk, or an overlay such as the open texts of an editor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tensorc_dsl.report.files import StrPath, read_source
from tensorc_dsl.source import Source


class Files(Protocol):
    """The interface of the layer through which files are read."""

    def read(self, path: StrPath, name: str | None = None) -> Source:
        """The text of a file; `name` is its name in messages. Raises TschedError (E0901, E0902, E0917)."""
        ...


class Disk:
    """Files as they are stored."""

    def read(self, path: StrPath, name: str | None = None) -> Source:
        return read_source(path, name)


class Overlay:
    """Files of which some have another text: `texts`, by path, copied when the overlay is made."""

    def __init__(self, texts: Mapping[StrPath, str], below: Files) -> None:
        self._texts = {Path(path).resolve(): text for path, text in texts.items()}
        self._below = below

    def read(self, path: StrPath, name: str | None = None) -> Source:
        text = self._texts.get(Path(path).resolve())
        return self._below.read(path, name) if text is None else Source.of(text.encode(), name or str(path))
