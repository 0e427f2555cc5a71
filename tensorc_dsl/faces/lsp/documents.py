"""The open documents, and what is known of each as it stands."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from urllib.parse import unquote

from pygls.uris import from_fs_path, to_fs_path

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.positions import Remembered
from tensorc_dsl.check.scope import Versions
from tensorc_dsl.faces.lsp.analysis import Analysis, Text, normal
from tensorc_dsl.faces.lsp.parts import Pieces
from tensorc_dsl.faces.packages import Disk, Resolver, StrPath, with_unsaved_files
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.parse import Parsed, parse_items

LARGEST = 1 << 20
"""The number of characters of a text that is analysed; longer ones would keep the editor waiting."""

KEPT = 256
"""The number of trees of used files that are kept."""

MOST_FILES, MOST_CLOSED = 2048, 32
"""The number of files of the editor's folders whose text is kept, and of those of which all is known."""

Stamp = tuple[int, int] | int | None
"""What distinguishes two versions of a file: time and size on the disk, or the version of an open document."""


LONGEST_NAME, LONGEST_PATH = 255, 4095
"""Bytes of the names that files can have, and of their paths."""


def file_of(uri: str) -> Path | None:
    """The file or the folder at an address; None for an address that no file can have."""
    try:
        path = to_fs_path(uri)
    except ValueError:
        return None  # it is no address
    return Path(path) if path and _can_be_a_file(path) else None


def path_of(uri: str) -> Path:
    """The file of a document; for one that is not saved yet, a name in the working folder."""
    if (file := file_of(uri)) is not None:
        return file
    name = unquote(uri).rpartition("/")[2].rpartition(":")[2]
    return Path(name if name not in ("", ".", "..") and _can_be_a_file(name) else "new")


def _can_be_a_file(path: str) -> bool:
    names = [name.encode(errors="replace") for name in path.split("/")]
    return "\0" not in path and len(path) <= LONGEST_PATH and max(map(len, names)) <= LONGEST_NAME


def uri_of(path: Path) -> str:
    found = from_fs_path(str(path.absolute()))
    assert found is not None
    return found


@dataclass(slots=True)
class Document:
    """An open text. `analysis` is that of its last version that anybody asked about; `tokens` are the semantic tokens that
    were told last, with the name of that answer.
    """

    uri: str
    path: Path
    text: str
    version: int = 0
    pieces: Pieces = field(default_factory=Pieces)
    analysis: Analysis | None = None
    session: Session | None = None
    tokens: tuple[str, list[int]] | None = None


@dataclass(slots=True)
class Session:
    """What lasts as long as a document uses the same files, and these are the same."""

    uses: tuple[str, ...]
    epoch: int
    resolver: Resolver
    reads: Reads
    memory: Remembered
    versions: Versions
    file: t.File


@dataclass(slots=True)
class Reads:
    """Finds and reads files for one document: open ones as they stand in the editor. `stamps` tells what was read."""

    documents: Documents
    stamps: dict[Path, Stamp] = field(default_factory=dict[Path, Stamp])

    def read(self, path: StrPath, name: str | None = None) -> Source:
        real = Path(path).resolve()
        self.stamps[real] = self.documents.stamp(real)
        document = self.documents.at(real)
        return Disk().read(path, name) if document is None else Source(name or str(path), document.text)

    def has(self, path: Path) -> bool:
        return Disk().has(path) or Path(os.path.realpath(path)) in self._open()

    def listed(self, folder: Path) -> tuple[Path, ...]:
        return with_unsaved_files(Disk().listed(folder), folder, self._open())

    def _open(self) -> list[Path]:
        files = (file_of(d.uri) for d in self.documents.open.values())
        return [Path(os.path.realpath(file)) for file in files if file is not None]

    def still(self) -> bool:
        """Whether all that was read is the same now."""
        return all(self.documents.stamp(path) == stamp for path, stamp in self.stamps.items())


class Documents:
    """The open documents by their addresses. `epoch` grows when files may have come or gone; `answers` names answers that an
    editor may refer to.

    What they use is looked for in the folders `include`, too.
    """

    def __init__(self, include: Sequence[str] = ()) -> None:
        self.include = include
        self.open: dict[str, Document] = {}
        self.encoding = "utf-16"
        self.epoch = 0
        self.answers = count()
        self.folders: dict[str, Path] = {}
        self._read: dict[Path, tuple[Stamp, Source]] = {}
        self._closed: dict[Path, Document] = {}
        self._places: tuple[int, dict[Path, Document]] | None = None
        self._parsed = lru_cache(KEPT)(parse_items)

    # --- notifications of the editor -----------------------------------------------------------------------------------

    def put(self, uri: str, text: str, version: int) -> Document:
        """The document with its text; it is open afterwards."""
        document = self.open.get(uri)
        if document is None:
            path = path_of(uri)
            self.open[uri] = document = Document(uri, path, "")
            self._places = None
            self.look_again()
        document.text, document.version = normal(text), version
        return document

    def close(self, uri: str) -> None:
        self.open.pop(uri, None)
        self._places = None

    def files_came_or_went(self) -> None:
        self.epoch += 1

    def look_again(self) -> None:
        """Look for the files that a `use` did not find: the editor may not tell when they come."""
        if any(d.analysis is not None and d.analysis.misses_files for d in self.open.values()):
            self.epoch += 1

    # --- files -------------------------------------------------------------------------------------------------------

    def at(self, path: Path) -> Document | None:
        """The open document of a file. Where links lead is looked up when files may have come or gone: an answer asks about
        each file of the library, for each open document."""
        if self._places is None or self._places[0] != self.epoch:
            places: dict[Path, Document] = {}
            for d in self.open.values():
                places.setdefault(d.path, d)
                places.setdefault(d.path.resolve(), d)
            self._places = self.epoch, places
        return self._places[1].get(path)

    def stamp(self, path: Path) -> Stamp:
        if (document := self.at(path)) is not None:
            return document.version
        try:
            found = path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    def files(self) -> Iterator[Path]:
        """The `.tsched` files of the editor's folders, and of those of the open documents."""
        from tensorc_dsl.faces.report.files import sources_below

        seen: set[Path] = set()
        for folder in (*self.folders.values(), *(d.path.parent for d in self.open.values() if d.path.exists())):
            if any(folder.is_relative_to(done) for done in seen):
                continue
            seen.add(folder)
            try:
                yield from sources_below(folder)
            except TschedError:
                continue  # there is none

    def tree(self, path: Path) -> tuple[str, Text, tuple[t.Item, ...]] | None:
        """The address, the text and the items of a file, open or not; None if it cannot be read."""
        real = path.resolve()
        document = self.at(real)
        if document is not None:
            known = self.analysis(document)
            return document.uri, known.text, self._parsed(known.source).file.items
        stamp = self.stamp(real)
        known_file = self._read.get(real)
        if known_file is None or known_file[0] != stamp:
            try:
                source = Disk().read(real)
            except TschedError:
                return None
            if len(self._read) >= MOST_FILES:
                self._read.clear()
            self._read[real] = known_file = (stamp, source)
        source = known_file[1]
        items = self._parsed(source).file.items if len(source.text) <= LARGEST else ()
        return uri_of(path), Text(source, self.encoding), items

    def has_word(self, path: Path, word: str) -> bool:
        """Whether a file has a word anywhere in its text."""
        found = self.tree(path)
        return found is not None and word in found[1].source.text

    def of_file(self, path: Path) -> Analysis | None:
        """The analysis of a file, open or not; None if it cannot be read."""
        document = self.at(path.resolve())
        if document is not None:
            return self.analysis(document)
        found = self.tree(path)
        if found is None:
            return None
        known = self._closed.get(path)
        if known is None:
            if len(self._closed) >= MOST_CLOSED:
                self._closed.clear()
            self._closed[path] = known = Document(uri_of(path), path, "")
        known.text = normal(found[1].source.text)
        return self.analysis(known)

    # --- what is known -----------------------------------------------------------------------------------------------

    def analysis(self, document: Document) -> Analysis:
        """What is known of the document as it stands."""
        session = document.session
        if document.analysis is not None and self._is_known(document):
            return document.analysis
        text = document.text if len(document.text) <= LARGEST else ""
        source = Source(str(document.path), text)
        pieces = document.pieces.read(source)
        file = t.File(source, tuple(i for p in pieces for i in p.items))
        uses = tuple(i.span.text for i in file.items if isinstance(i, t.UseDecl))
        if session is None or not self._is_fresh(session) or session.uses != uses:
            document.session = session = self._session(document, uses, file)
        session.file = file
        checked = session.versions.load(source)
        document.analysis = Analysis(
            document.uri,
            document.version,
            Text(source, self.encoding),
            pieces,
            checked,
            session.memory,
            session.resolver,
        )
        return document.analysis

    @contextmanager
    def tried(self, analysis: Analysis, text: str) -> Generator[Analysis]:
        """What would be known of a document with another text: an edit that is taken back at the end.

        The parts that are the same are not read again. They are moved, so nobody else may ask about the document meanwhile.
        Afterwards the places of `analysis` hold again, and the next request checks the text as it stands again.
        """
        closed = (d for d in self._closed.values() if d.uri == analysis.uri)
        document = self.open.get(analysis.uri) or next(closed, None)
        if document is None or document.analysis is not analysis:
            yield self.analysis(Document(analysis.uri, path_of(analysis.uri), text, analysis.version))
            return
        was, pieces = document.text, document.pieces.last
        document.text = text
        try:
            yield self.analysis(document)
        finally:
            document.text, document.analysis = was, None
            document.pieces.restore(pieces)

    def users(self, analysis: Analysis) -> Iterator[Analysis]:
        """What is known of the other open documents that use the files of this one. Those that have changed
        since are left out: after an edit, a request does not wait for all users of the file."""
        own = path_of(analysis.uri).resolve()
        for document in self.open.values():
            known, session = document.analysis, document.session
            if known is None or session is None or document.uri == analysis.uri or own not in session.reads.stamps:
                continue
            if self._is_known(document):
                yield known

    def _is_known(self, document: Document) -> bool:
        """Whether the analysis of the document is that of its text as it stands, and of the files that it uses."""
        known, session = document.analysis, document.session
        return (
            known is not None
            and session is not None
            and known.text.source.text == document.text
            and known.version == document.version
            and self._is_fresh(session)
        )

    def _is_fresh(self, session: Session) -> bool:
        return session.epoch == self.epoch and session.reads.still()

    def _session(self, document: Document, uses: tuple[str, ...], file: t.File) -> Session:
        reads = Reads(self)
        resolver = Resolver(document.path, self.include, reads)
        memory = Remembered()

        def parsed(source: Source) -> Parsed:
            own = document.session
            return Parsed(own.file, ()) if own is not None and source is own.file.source else self._parsed(source)

        return Session(uses, self.epoch, resolver, reads, memory, Versions(resolver, parsed, memory), file)
