"""Records of a team in a place that all reach: a folder, a bucket or a server, through fsspec.

A file there has the digest of its content as its name, and is never changed: whoever syncs reads the files of others, and
writes the records that none of them has as one more. So two that sync at the same time cannot destroy each other's, and a
record that both write is one, by its own digest. What was damaged on its way is seen by its name.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self, cast

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.lines import SCHEMA_VERSION, Read, read, written
from tensorc_dsl.tuning.records.schema import to_row
from tensorc_dsl.tuning.records.trial import Subject, Trial


@problem(
    "E0880",
    "records cannot be synced with `{url}`: {why}",
    help="give a folder, or a URL that fsspec knows and its package is installed for, such as `s3://bucket/records`",
)
def NO_PLACE(*, url: str, why: str) -> None: ...
@problem(
    "E0881",
    "`{file}` is not what was written there: {why}; it is left out",
    help="remove it: whoever has its records writes them again with the next `db sync`",
)
def DAMAGED(*, file: str, why: str) -> None: ...


_NAME = re.compile(r"records-([0-9a-f]{32})\.jsonl")


@dataclass(frozen=True, slots=True)
class Synced:
    """So many files were read, with so many records that were new here; so many were written there, to the file `wrote`.
    `damaged` are the findings about files that were left out."""

    files: int
    added: int
    sent: int
    wrote: str
    damaged: tuple[Diagnostic, ...]


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files are. Raises TschedError (E0880) where it cannot be reached, read or written."""

    url: str
    files: Any
    path: str

    @classmethod
    def at(cls, url: str) -> Self:
        """The place at a path or a URL; a folder is made."""
        try:
            files, path = cast(Any, import_module("fsspec.core")).url_to_fs(url)
            return cls(url, files, str(path))
        except Exception as e:  # of whatever package serves the URL
            raise TschedError(NO_PLACE(None, url=url, why=_words(e))) from e

    def names(self) -> list[str]:
        """The files of records, sorted."""
        try:
            listed = self.files.ls(self.path, detail=False)
        except FileNotFoundError:
            return []
        except Exception as e:
            raise TschedError(NO_PLACE(None, url=self.url, why=_words(e))) from e
        return sorted(n for one in listed if _NAME.fullmatch(n := str(one).rstrip("/").rpartition("/")[2]))

    def content(self, name: str) -> bytes:
        try:
            return bytes(self.files.cat_file(f"{self.path}/{name}"))
        except Exception as e:
            raise TschedError(NO_PLACE(None, url=self.url, why=_words(e))) from e

    def add(self, name: str, content: bytes) -> None:
        """Write a file that is not there, under another name until it is whole."""
        try:
            self.files.makedirs(self.path, exist_ok=True)
            part = f"{self.path}/.{name}.part"
            self.files.pipe_file(part, content)
            self.files.mv(part, f"{self.path}/{name}")
        except Exception as e:
            raise TschedError(NO_PLACE(None, url=self.url, why=_words(e))) from e


def _words(e: Exception) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[0]


def sync(database: Database, url: str) -> Synced:
    """Add the records at the place to the database, and those of the database to the place. Raises TschedError (E0880)."""
    place = Place.at(url)
    damaged: list[Diagnostic] = []
    there: set[str] = set()
    found: list[Read] = []
    names = place.names()
    for name in names:
        content = place.content(name)
        one = read(io.BytesIO(content))
        if _digest(content) != cast(re.Match[str], _NAME.fullmatch(name))[1]:
            damaged.append(DAMAGED(None, file=name, why="its content has another digest than its name"))
        elif one.newer is not None:
            why = f"it is of format {one.newer}, and this version reads up to {SCHEMA_VERSION}"
            damaged.append(DAMAGED(None, file=name, why=why))
        else:
            found.append(one)
            there |= {identity(t) for t in one.trials}
    own = [kept.trial for kept in database.all() if isinstance(kept.trial, Trial)]
    mine = [t for t in own if identity(t) not in there]
    about: Mapping[str, str]
    about, machines = database.subjects()
    trials: list[Trial] = [t for one in found for t in one.trials]
    subjects: list[Subject] = [s for one in found for s in one.subjects]
    added = database.add_all(trials, subjects) if trials else 0
    wrote = ""
    if mine:
        content = b"".join(written(mine, about, machines))
        wrote = f"records-{_digest(content)}.jsonl"
        if wrote not in names:
            place.add(wrote, content)
    return Synced(len(found), added, len(mine), wrote, tuple(damaged))


def identity(trial: Trial) -> str:
    """The digest of a record, which every copy has."""
    return str(to_row(trial)[-1])
