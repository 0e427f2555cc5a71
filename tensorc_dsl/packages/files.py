"""Where the text of a file is read: from the disk, or from what somebody has in front of it, such as an editor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tensorc_dsl.report.files import StrPath, read_source
from tensorc_dsl.source import Source


class Files(Protocol):
    """What files are read through."""

    def read(self, path: StrPath, name: str | None = None) -> Source:
        """The text of a file; `name` is what messages call it. Raises TschedError (E0901, E0902, E0917)."""
        ...


class Disk:
    """Files as they are stored."""

    def read(self, path: StrPath, name: str | None = None) -> Source:
        return read_source(path, name)


class Overlay:
    """Files of which some have another text: `texts`, by path, as they are when the overlay is made."""

    def __init__(self, texts: Mapping[StrPath, str], below: Files) -> None:
        self._texts = {Path(path).resolve(): text for path, text in texts.items()}
        self._below = below

    def read(self, path: StrPath, name: str | None = None) -> Source:
        text = self._texts.get(Path(path).resolve())
        return self._below.read(path, name) if text is None else Source.of(text.encode(), name or str(path))
