"""Records for other programs and other machines: JSON Lines, one object a line, each with its `kind`; and the exchange of a
team, in a place that all reach: a folder, a bucket or a server, through fsspec.

A `workload` or a `target` precedes the first trial that refers to it. Lines may be removed, and files concatenated: existing
records are not added again. Input is untrusted: each line is checked, and an invalid one is skipped.

A file of the place has the digest of its content as its name, and is never changed: whoever syncs reads the files of others,
and writes the records that none of them has as one more. So two that sync at the same time cannot destroy each other's, and a
record that both write is one, by its own digest. What was damaged on its way is seen by its name.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, BinaryIO, Literal, Self, TypeVar, cast

import msgspec

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.tuning.measure.outcome import Status
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.errors import Passed
from tensorc_dsl.tuning.records.names import Named, carried, named
from tensorc_dsl.tuning.records.schema import MAX_TEXT, SCHEMA_VERSION, BadRow, to_row, verify_trial
from tensorc_dsl.tuning.records.trial import (
    Phase,
    Subject,
    Trial,
    decode_decisions,
    digest,
    encode_decisions,
    facts_text,
)

MAX_LINE = 4 * MAX_TEXT
"""Bytes of a line that is read."""

_Times = list[float]


class _Format(msgspec.Struct, tag_field="kind", tag="format", forbid_unknown_fields=True):
    """The first line."""

    version: int
    name: Literal["tensorc-dsl records"] = "tensorc-dsl records"


class _Workload(msgspec.Struct, tag_field="kind", tag="workload", forbid_unknown_fields=True, omit_defaults=True):
    task_key: str
    program: str
    workload: str | None = None
    """Of format 2: the digest of the program without the task's name."""


class _Target(msgspec.Struct, tag_field="kind", tag="target", forbid_unknown_fields=True):
    fingerprint: str
    facts: dict[str, int | str]


class _Trial(msgspec.Struct, tag_field="kind", tag="trial", forbid_unknown_fields=True):
    task_key: str
    target_key: str
    task: str
    strategy: str
    seed: int
    trial: int
    status: Status
    decisions: msgspec.Raw
    trace: str
    program_key: str
    seconds: float | None
    times: _Times
    message: str
    max_error: float | Literal["inf"] | None
    build_seconds: float
    run_seconds: float
    phase: Phase
    created: float
    version: str
    run: str
    fingerprint: str
    modules: dict[str, str]
    censored: bool
    cache: str
    scale: float
    columns: str
    features: list[float]
    names: list[str] = []
    at: list[float] = []


_Line = _Format | _Workload | _Target | _Trial

_decoder = msgspec.json.Decoder(_Line)


@dataclass(slots=True)
class Read:
    """The content of a file of lines: the trials with their subjects, and the lines that are skipped.

    `newer` is the format of the file if this version does not know it; then no line is read.
    """

    trials: list[Trial] = field(default_factory=list[Trial])
    subjects: list[Subject] = field(default_factory=list[Subject])
    passed: list[Passed] = field(default_factory=list[Passed])
    tasks: dict[str, Named] = field(default_factory=dict[str, Named])
    """The tasks by the keys in the file."""
    newer: int | None = None


def written(trials: Iterable[Trial], workloads: Mapping[str, str], targets: Mapping[str, str]) -> Iterator[bytes]:
    """The lines of the trials and their subjects, each with its line end."""
    yield _line(_Format(SCHEMA_VERSION))
    told: set[str] = set()
    for t in trials:
        if t.task_key in workloads and t.task_key not in told:
            yield _line(_Workload(t.task_key, workloads[t.task_key]))
        if t.fingerprint in targets and t.fingerprint not in told:
            yield _line(_Target(t.fingerprint, msgspec.json.decode(targets[t.fingerprint], type=dict[str, int | str])))
        told |= {t.task_key, t.fingerprint}
        yield _line(
            _Trial(
                t.task_key, t.target_key, t.task, t.strategy, t.seed, t.trial, Status(t.status),
                msgspec.Raw(encode_decisions(t.decisions).encode()), t.trace, t.program_key, t.seconds, list(t.times),
                t.message, "inf" if t.max_error == math.inf else t.max_error, t.build_seconds, t.run_seconds, t.phase,
                t.created, t.version, t.run, t.fingerprint, dict(t.modules), t.censored, t.cache, t.scale,
                t.columns, list(t.features), list(t.names), list(t.at),
            )
        )  # fmt: skip


def _line(line: _Line) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def read(file: BinaryIO) -> Read:
    """The records in the lines. No content of a line makes it raise."""
    found = Read()
    number = 0
    while raw := file.readline(MAX_LINE + 1):
        number += 1
        try:
            if len(raw) > MAX_LINE:
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(MAX_LINE)
                raise BadRow(f"it is longer than {MAX_LINE} bytes")
            if raw.strip():
                _take(_decoded(raw, _decoder), found)
        except BadRow as e:
            found.passed.append(Passed(number, str(e)))
        if found.newer is not None:
            break
    return found


def _take(line: _Line, found: Read) -> None:
    match line:
        case _Format(version=version):
            if version > SCHEMA_VERSION:
                found.newer = version
        case _Workload():
            found.subjects.append(_workload(line, found.tasks))
        case _Target(fingerprint=fingerprint, facts=facts):
            text = facts_text(facts)
            if digest(text) != fingerprint:
                raise BadRow("its fingerprint is not that of its facts")
            found.subjects.append(Subject("", "", fingerprint, text))
        case _Trial():
            found.trials.append(carried(_trial(line), found.tasks))


def _workload(line: _Workload, tasks: dict[str, Named]) -> Subject:
    _short(line.program, "program")
    task = named(line.task_key, line.program)
    if task is None:
        raise BadRow("its key is not that of its program")
    tasks[line.task_key] = task
    return Subject(task.key, line.program, "", "")


def _trial(line: _Trial) -> Trial:
    values = msgspec.structs.asdict(line)
    for name, value in values.items():
        if isinstance(value, str):
            _short(value, name)
        elif isinstance(value, float) and not math.isfinite(value):
            raise BadRow(f"its {name} is {value}")
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise BadRow(f"its {name} has more than 64 bits")
    if not line.created > 0:
        raise BadRow("it has no date")
    if sum(len(k) + len(v) for k, v in line.modules.items()) > MAX_TEXT:
        raise BadRow("its modules are too many")
    if sum(map(len, line.names)) > MAX_TEXT:
        raise BadRow("its names are too many")
    values["status"] = str(line.status)
    values["max_error"] = math.inf if line.max_error == "inf" else line.max_error
    values["times"] = tuple(line.times)
    values["features"] = tuple(line.features)
    values["names"] = tuple(line.names)
    values["at"] = tuple(line.at)
    try:
        values["decisions"] = decode_decisions(bytes(line.decisions).decode())
    except (msgspec.DecodeError, ValueError, RecursionError) as e:
        raise BadRow(f"its decisions cannot be read: {e}") from e
    trial = Trial(**values)
    verify_trial(trial)
    return trial


def _short(text: str, name: str) -> None:
    if len(text.encode("utf-8", "replace")) > MAX_TEXT:
        raise BadRow(f"its {name} is longer than {MAX_TEXT} bytes")


_Any = TypeVar("_Any")


def _decoded(raw: bytes, decoder: msgspec.json.Decoder[_Any]) -> _Any:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError) as e:
        raise BadRow(str(e)) from e


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


@frozen
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


@frozen
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
