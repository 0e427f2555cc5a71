"""Tasks: the choice of their space and its errors; queries of blocks and loops that no longer exist."""

import numpy as np
import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.interp.space import Space, frozen_space, task_space
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.step import ScheduleRefusal

USES = "use std.ops.conv2d\nuse std.ops.matmul\n"
CONV = "task t = conv2d_nhwc(N=1, H=5, W=5, CI=2, CO=2, KH=3, KW=3)\n"
TARGET = Target(vector_bits=256, cores=2)


def file(text: str) -> CheckedFile:
    return load_source(Source("test.tsched", USES + text))


def space(text: str) -> Space:
    return task_space(file(text), "t", TARGET)


def sample(s: Space) -> str:
    return s.sample(np.random.Generator(np.random.Philox(0))).text


def test_a_task_takes_what_it_names_before_anything_else():
    both = 'schedule a for matmul { annotate(root, "x", 1) }\nschedule b for matmul { annotate(root, "x", 2) }\n'
    assert '"x", 2' in sample(space(both + "task t = matmul(M=2, N=2, K=2) with b"))


def test_a_schedule_for_the_compute_goes_before_a_space():
    text = 'module m(p: Program) { annotate(p.root, "x", 1) }\nspace s for llvm { m }\n'
    task = "task t = matmul(M=2, N=2, K=2)"
    assert sample(space(text + task)).startswith("schedule s for")
    assert sample(space(text + "schedule own for matmul { }\n" + task)).startswith("schedule own for")


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("", "E0552", "use std.cpu"),
        ("schedule a for matmul { }\nschedule b for matmul { }\n", "E0553", "with a"),
        ("schedule a for conv2d_nhwc { }\n", "E0552", "nothing says"),
    ],
)
def test_no_space_or_several_is_an_error_with_a_repair(text: str, code: str, part: str):
    with pytest.raises(TschedError) as problem:
        space(text + "task t = matmul(M=2, N=2, K=2)")
    (d,) = problem.value.diagnostics
    assert d.code == code
    assert part in d.message + d.notes[-1].text


def test_a_frozen_file_has_one_schedule_for_the_compute():
    s = space("schedule a for matmul { }\ntask t = matmul(M=2, N=2, K=2)")
    assert sample(frozen_space(file('schedule z for matmul { annotate(root, "x", 7) }'), s)).count('"x", 7') == 1
    for wrong in ("schedule z for conv2d_nhwc { }", "schedule y for matmul { }\nschedule z for matmul { }"):
        with pytest.raises(TschedError, match="E0554"):
            frozen_space(file(wrong), s)


@pytest.mark.parametrize(
    ("steps", "where"),
    [
        ("let x = P.loops", "P.loops"),
        ("cache_read(Y, P)", "P"),
        ("let e = h.extent", "h.extent"),
        ("let e ~ sample_perfect_tile(h, parts=2)", "h"),
        ("split(h, [_, 2])", "h"),
    ],
)
def test_what_is_gone_is_refused_where_it_is_used(steps: str, where: str):
    text = f"schedule a for conv2d_nhwc {{\n let [_, h, _, _] = P.loops\n compute_inline(P)\n {steps}\n}}\n"
    with pytest.raises(ScheduleRefusal) as refusal:
        sample(space(text + CONV))
    assert refusal.value.refusal.code in ("E0340", "E0341")
    assert refusal.value.span is not None
    assert refusal.value.span.text == where
    assert refusal.value.steps[-1] == "compute_inline(P)"
