"""What emulations have counted: lines of JSON in a file of their own, beside the database of times.

Counts are no times, so nothing that learns from times reads them. A line is written whole when its schedule is done; one that
was cut off is no record.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tensorc_dsl.base.outputs import open_regular
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.measure.emulation import Emulated
from tensorc_dsl.tuning.records.database import default_path
from tensorc_dsl.tuning.records.errors import unreadable, unwritable
from tensorc_dsl.tuning.records.trial import package_key, subject, target_key

NAME = "emulated.jsonl"
"""The name of the file, in the folder of the database."""


@dataclass(frozen=True, slots=True)
class Emulation:
    """What became of draw number `draw` of a seed: the digest of its schedule, and what was found, or why its kernel is
    wrong, or why it has none."""

    about: str
    seed: int
    draw: int
    schedule: str
    found: Emulated | None = None
    fault: str = ""
    refused: str = ""


def about(program: Program, target: Target) -> str:
    """What counts depend on besides the schedule: the task, the target and this package."""
    return f"{subject(program, target, 1).task_key} {target_key(target, 1)} {package_key()}"


def place(records: Path | None) -> Path:
    """The file beside a database."""
    return (records or default_path()).with_name(NAME)


def kept(path: Path, about: str, seed: int) -> Mapping[int, Emulation]:
    """The records of a seed by the numbers of their draws, the last ones. Raises TschedError (E0708)."""
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return {}
    except OSError as e:
        raise unreadable(path, e.strerror or str(e)) from e
    out: dict[int, Emulation] = {}
    for line in lines:
        try:
            one = msgspec.json.decode(line, type=Emulation)
        except (msgspec.DecodeError, ValueError):
            continue  # cut off, or of another version
        if (one.about, one.seed) == (about, seed):
            out[one.draw] = one
    return out


def keep(path: Path, one: Emulation) -> None:
    """The record is the last line of the file. Raises TschedError (E0703)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            size = os.fstat(file).st_size
            whole = not size or os.pread(file, 1, size - 1) == b"\n"
            os.write(file, (b"" if whole else b"\n") + msgspec.json.encode(one) + b"\n")
        finally:
            os.close(file)
    except OSError as e:
        raise unwritable(path, e.strerror or str(e)) from e
