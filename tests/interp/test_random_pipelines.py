"""Random pipelines under the library's rules: each draw is right and proved. `make pipelines` draws any number of them."""

from __future__ import annotations

import os

import pytest

from tensorc_dsl.api import Task, TaskFile
from tensorc_dsl.check.items import FORGETFUL
from tensorc_dsl.check.scope import Versions
from tensorc_dsl.check.uses import standard
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.machine.host import host_target
from tensorc_dsl.search.streams import stream
from tensorc_dsl.source import Source
from tensorc_dsl.syntax.parse import parse_items
from tensorc_dsl.trace.trace import Trace
from tensorc_dsl.validate.validate import Valid, validate
from tests.codegen import native
from tests.interp.hard_pipelines import HARD
from tests.interp.random_pipelines import in_a_file, pipeline

COUNT = int(os.environ.get("PIPELINES", "4"))
SEED = int(os.environ.get("PIPELINES_SEED", "0"))

FILES = Versions(standard, parse_items, FORGETFUL)
"""Loads the library once for all pipelines."""


def task(compute: str) -> Task:
    checked = FILES.load(Source("pipeline.tsched", in_a_file(compute)))
    assert not checked.errors, (checked.errors, compute)
    return TaskFile(checked, host_target(2))["p"]


def proved(t: Task, number: int) -> Trace:
    """A draw of the space, which is proved to compute what the task does."""
    trace = t.space.sample(stream(number, t.name, "test"))
    assert trace.refused == ()
    verify(trace.program)
    found = validate(t.program, trace.program)
    assert isinstance(found, Valid), (found, trace.text)
    return trace


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
def test_every_draw_is_right_and_proved(seed: int) -> None:
    t = task(pipeline(seed))
    native.require_right(t, [proved(t, n) for n in range(2)])


@pytest.mark.parametrize("name", HARD)
def test_what_is_read_in_many_pieces_is_proved(name: str) -> None:
    t = task(HARD[name])
    for n in range(2):
        proved(t, n)
