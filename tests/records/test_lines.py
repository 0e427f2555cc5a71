"""Tests of records as JSON Lines: the round trip, and the checks of untrusted input."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.exchange import MAX_LINE, Read, read, written
from tensorc_dsl.tuning.records.schema import MAX_TEXT, to_row
from tensorc_dsl.tuning.records.trial import Trial, subject
from tests.programs import matmul
from tests.records.test_formats import FULL

TRIAL = replace(FULL, created=1.7e9, version="0.1.0")
FAILED = replace(TRIAL, status="wrong_result", seconds=None, times=(), max_error=math.inf, message='a "b"\n\x1b[31m\0é')
HUGE = replace(TRIAL, decisions={"n": 2**200, "x": -math.inf, "t": (1, 2)})


def lines_of(*trials: Trial) -> bytes:
    return b"".join(written(trials, {}, {}))


def test_lines_hold_all_that_records_say(tmp_path: Path) -> None:
    about = subject(matmul(4, 4, 4), Target(), 2)
    trials = [replace(t, task_key=about.task_key, fingerprint=about.fingerprint) for t in (TRIAL, FAILED, HUGE)]
    with Database.open(tmp_path / "a.sqlite") as a, Database.open(tmp_path / "b.sqlite") as b:
        a.add_all(trials, [about])
        lines = b"".join(written((k.trial for k in a.all() if isinstance(k.trial, Trial)), *a.subjects()))
        found = read(BytesIO(lines))
        assert found.passed == [] and found.trials == trials
        assert [to_row(t) for t in found.trials] == [to_row(t) for t in trials]
        assert b.add_all(found.trials, found.subjects) == 3
        assert b.add_all(found.trials, found.subjects) == 0
        assert b.subjects() == a.subjects() != ({}, {})
        assert [k.trial for k in a.all()] == [k.trial for k in b.all()]
    kinds = [json.loads(line)["kind"] for line in lines.splitlines()]
    assert kinds == ["format", "workload", "target", "trial", "trial", "trial"]


def test_files_of_lines_can_be_cut_and_put_together() -> None:
    one, other = lines_of(TRIAL), lines_of(FAILED, HUGE)
    assert read(BytesIO(one + other + b"\n")).trials == [TRIAL, FAILED, HUGE]
    assert read(BytesIO(other.split(b"\n", 2)[2])).trials == [HUGE]


def changed(**values: Any) -> bytes:
    first, line = lines_of(TRIAL).splitlines()
    fields = {k: v for k, v in (json.loads(line) | values).items() if v is not ...}
    return first + b"\n" + json.dumps(fields).encode() + b"\n"


BAD = {
    "no JSON": b"hello\n",
    "another kind": b'{"kind": "photo"}\n',
    "a list": b"[1]\n",
    "deep": b"[" * 100_000 + b"\n",
    "no UTF-8": b'{"kind": "trial\xff"}\n',
    "half a character": changed(message="\ud800"),
    "a field less": changed(trace=...),
    "a field more": changed(more=1),
    "another status": changed(status="lucky"),
    "ok without a time": changed(seconds=None),
    "a failure with a time": changed(status="crash"),
    "a negative time": changed(seconds=-1.0),
    "a negative sample": changed(times=[-1.0]),
    "an endless time": changed().replace(b"0.0015", b"1e999"),
    "not a number": changed().replace(b"0.0015", b"NaN"),
    "a long number": changed(seed=2**64),
    "a long text": changed(trace="x" * (MAX_TEXT + 1)),
    "a long line": b" " * (2 * MAX_LINE + 5) + b"\n",
    "many modules": changed(modules={str(n): "x" * 100 for n in range(20_000)}),
    "decisions of another kind": changed(decisions=[1]),
    "decisions in decisions": changed(decisions={"a": {"b": {}}}),
    "another phase": changed(phase="later"),
    "no scale": changed(scale=0.0),
    "no date": changed(created=0.0),
    "a text for a time": changed(seconds="soon"),
    "another program's keys": b'{"kind": "workload", "task_key": "a", "workload": "b", "program": "program p() {}"}\n',
    "no program": b'{"kind": "workload", "task_key": "a", "workload": "b", "program": "x"}\n',
    "another machine's facts": b'{"kind": "target", "fingerprint": "a", "facts": {"cpu": "x"}}\n',
}


@pytest.mark.parametrize("name", BAD)
def test_a_line_that_is_no_record_is_passed_over(name: str, tmp_path: Path) -> None:
    found = read(BytesIO(BAD[name] + lines_of(FAILED)))
    assert found.trials == [FAILED]
    assert found.subjects == []
    assert len(found.passed) == 1
    with Database.open(tmp_path / "r.sqlite") as db:
        assert db.add_all(found.trials, found.subjects) == 1


def test_a_later_format_is_not_read() -> None:
    found = read(BytesIO(b'{"kind": "format", "version": 99}\n' + lines_of(TRIAL)))
    assert (found.newer, found.trials) == (99, [])


@given(st.binary(max_size=300), st.integers(0, 800), st.integers(0, 20))
def test_any_bytes_are_read_to_their_end(noise: bytes, at: int, gone: int) -> None:
    whole = lines_of(TRIAL, FAILED)
    found: Read = read(BytesIO(whole[:at] + noise + whole[at + gone :]))
    assert len(found.trials) + len(found.passed) <= len((whole + noise).splitlines()) + 1
