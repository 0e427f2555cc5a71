"""Random pipelines under the library's rules: each draw is right and proved. `make pipelines` draws any number of them."""

from __future__ import annotations

import os

import pytest

from tensorc_dsl.api import TaskFile
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.machine.host import host_target
from tensorc_dsl.search.streams import stream
from tensorc_dsl.source import Source
from tensorc_dsl.validate.validate import Valid, validate
from tests.codegen import native
from tests.interp.random_pipelines import pipeline

COUNT = int(os.environ.get("PIPELINES", "4"))
SEED = int(os.environ.get("PIPELINES_SEED", "0"))


HARD = (533, 550, 1094)
"""Pipelines whose stages were asked for in dozens of pieces, with holes: nothing was proved of some of their draws."""


@pytest.mark.parametrize("seed", [*range(SEED, SEED + COUNT), *HARD])
def test_every_draw_is_right_and_proved(seed: int) -> None:
    t = TaskFile(load_source(Source("pipeline.tsched", pipeline(seed))), host_target(2))["p"]
    traces = [t.space.sample(stream(n, t.name, "test")) for n in range(2)]
    for trace in traces:
        assert trace.refused == ()
        verify(trace.program)
        found = validate(t.program, trace.program)
        assert isinstance(found, Valid), (found, trace.text)
    native.require_right(t, traces)
