"""Tasks that this machine cannot check are reported before any process is started."""

import pytest

from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.ir.expr import index
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.measure import local
from tensorc_dsl.measure.limits import memory_needed
from tensorc_dsl.measure.local import LocalRunner
from tests import programs


def test_the_estimate_counts_every_element_of_every_buffer() -> None:
    assert memory_needed(programs.matmul(3, 5, 7)) == (3 * 5 + 5 * 7 + 3 * 7) * (3 * 4 + 4 * 8)


def test_a_task_larger_than_the_memory_is_refused() -> None:
    small = programs.matmul(3, 5, 7)
    wide = Buffer("A", small.params[0].dtype, (index(1 << 30), index(1 << 20)))
    huge = Program("huge", (wide, *small.params[1:]), (), small.body)
    with pytest.raises(TschedError, match="E0706"):
        LocalRunner(huge, Target(), threads=1)


def test_a_reference_that_takes_too_long_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "PREPARE_SECONDS", 0.0)
    program = programs.matmul(64, 64, 64)
    with LocalRunner(program, Target(), threads=1, builders=1) as runner, pytest.raises(TschedError, match="E0707"):
        list(runner.measure([program], None))
