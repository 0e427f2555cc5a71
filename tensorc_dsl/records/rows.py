"""Converts between rows and trials. Every value of a row is checked, since the file may have been edited."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from tensorc_dsl.measure.outcome import Status
from tensorc_dsl.records.keys import digest
from tensorc_dsl.records.schema import CONTENT
from tensorc_dsl.records.trial import (
    Trial,
    decode_decisions,
    decode_modules,
    decode_times,
    encode_decisions,
    encode_modules,
    encode_times,
)

MAX_TEXT = 1 << 20
"""Bytes of a text that is read: a hundred times the longest trace of the library's spaces."""

SHORTEST = 1e-10
"""Seconds that no call of a kernel undercuts: less than one step of a processor's clock."""

LARGEST = 8.0
"""By how much a time is divided at most. Beside so much other work, one program's factor says nothing of another's."""

_NAMES = CONTENT.split(", ")
_TEXTS = frozenset(
    "task_key target_key task strategy status decisions trace program_key times message phase version "
    "run fingerprint modules cache columns features".split()
)

READ = ", ".join(
    f"CASE WHEN length(CAST({n} AS BLOB)) <= {MAX_TEXT} THEN CAST({n} AS BLOB) ELSE length(CAST({n} AS BLOB)) END"
    if n in _TEXTS
    else n
    for n in _NAMES
)
"""The columns in a query: texts as bytes, those that are too long as their length."""


class BadRow(Exception):
    """A row has a value that no search records. The message names it."""


def to_row(t: Trial) -> tuple[Any, ...]:
    """The values of `COLUMNS`."""
    row = (
        t.task_key, t.target_key, t.task, t.strategy, t.seed, t.trial, t.status, encode_decisions(t.decisions),
        t.trace, t.program_key, _real(t.seconds), encode_times(t.times), _storable(t.message), _real(t.max_error),
        float(t.build_seconds), float(t.run_seconds), t.phase, float(t.created), t.version, t.run, t.fingerprint,
        encode_modules(t.modules), int(t.censored), t.cache, float(t.scale),
        t.columns, encode_times(t.features),
    )  # fmt: skip
    return (*row, row_digest(row))


def row_digest(row: tuple[Any, ...]) -> str:
    """The identity of a record, in every copy: the digest of the values of `CONTENT`."""
    return digest(repr(row))


def _real(value: float | None) -> float | None:
    return None if value is None else float(value)


def _storable(text: str) -> str:
    """The output of a process as valid, bounded text: lone surrogates are escaped, and a long text is cut."""
    return text.encode("utf-8", "backslashreplace")[:MAX_TEXT].decode("utf-8", "ignore")


def from_row(row: tuple[Any, ...]) -> Trial:
    """The trial of a row of `READ`. Raises BadRow."""
    values: dict[str, Any] = {}
    for name, value in zip(_NAMES, row, strict=True):
        values[name] = _text(name, value) if name in _TEXTS else value
    try:
        values["decisions"] = decode_decisions(values["decisions"])
        values["times"] = decode_times(values["times"])
        values["features"] = decode_times(values["features"])
        values["modules"] = decode_modules(values["modules"])
        values["censored"] = values["censored"] != 0
        trial = msgspec.convert(values, Trial)
    except msgspec.DecodeError as e:
        raise BadRow(str(e)) from e
    verify_trial(trial)
    return trial


def verify_trial(trial: Trial) -> None:
    """Raises BadRow if fields of a trial contradict each other, or a number cannot be a measured one."""
    if trial.status not in Status.__members__.values():
        raise BadRow(f"there is no status `{trial.status}`")
    if (trial.status == "ok") != (trial.seconds is not None):
        raise BadRow(f"its status is `{trial.status}`, and its time {trial.seconds}")
    for seconds in (*([] if trial.seconds is None else [trial.seconds]), *trial.times):
        if not SHORTEST <= seconds < math.inf:
            raise BadRow(f"a time of it is {seconds:g} s")
    if not all(map(math.isfinite, trial.features)):
        raise BadRow("a number of its loops is none")
    if not 0.0 < trial.scale < math.inf:
        raise BadRow(f"its scale is {trial.scale:g}")


def _text(name: str, value: object) -> str:
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError as e:
                raise BadRow(f"its {name} is not UTF-8 text") from e
        case int():
            raise BadRow(f"its {name} is {value} bytes long, and {MAX_TEXT} are read")
        case _:
            raise BadRow(f"it has no {name}")
