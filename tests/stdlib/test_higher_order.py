"""Modules of `std.schedule`, which apply others: attempts, repetitions, lists."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import CheckedFile, load_file
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import Trace
from tests.programs import proof_fault

HEAD = """\
use std.schedule.{attempt, repeat, apply}
compute product(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }
module rows(l: Loop) { parallel(l) }
module straight(l: Loop) { unroll(l) }
module cut(b: Block, size: int = 2) { split(b.loops[0], [_, size]) }
module cut_and_refuse(b: Block) { cut(b); parallel(b.loops[-1]) }
module drawn(b: Block) { let f ~ sample_categorical([2, 3, 5]); split(b.loops[0], [_, f]) }
"""


def schedule(body: str, m: int) -> CheckedFile:
    return load_file(
        Source("t.tsched", f"{HEAD}schedule s for product {{\n{body}\n}}\ntask t = product(M={m}, N=6, K=4) with s\n")
    )


def trace(body: str, m: int = 24, seed: int = 0) -> Trace:
    checked = schedule(body, m)
    assert checked.errors == ()
    found = task_space(checked, "t", Target()).sample(np.random.default_rng(seed))
    assert proof_fault(checked.elaborated["t"], found.program) == ""
    return found


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("applied", "written"),
    [
        ("attempt(rows, i)", "parallel(i)"),
        ("attempt(rows, k)", ""),
        ("attempt(cut_and_refuse, C)", ""),
        ("attempt(attempt(m=cut), C)", "cut(C)"),
        ("apply(straight, [i, j])", "unroll(i); unroll(j)"),
        ("apply(straight, [])", ""),
        ("apply(attempt(m=rows), [k, i, j])", "parallel(i)"),
        ("apply(cut(size=3), [C])", "split(i, [_, 3])"),
        ("apply(attempt(m=cut(size=3)), [C, C])", "split(i, [_, 3])"),
        ("apply(apply(m=straight), [[i], [j, k]])", "unroll(i); unroll(j); unroll(k)"),
        ("repeat(cut_and_refuse, C)", ""),
        ("repeat(cut, C, most=0)", ""),
        ("repeat(cut, C, most=2)", "cut(C); cut(C)"),
        ("repeat(repeat(m=cut, most=2), C, most=1)", "cut(C); cut(C)"),
    ],
)
def test_what_is_applied_is_what_would_be_written(applied: str, written: str) -> None:
    head = "    let [i, j, k] = C.loops\n    "
    assert trace(head + applied).lines == trace(head + written).lines


@pytest.mark.parametrize(("m", "times"), [(1, 0), (7, 0), (24, 3), (32, 5), (2**20, 20)])
def test_a_repetition_ends_where_it_is_refused(m: int, times: int) -> None:
    found = trace("    repeat(cut, C, most=30)", m)
    assert sum("split(" in line for line in found.lines) == times


def test_a_repetition_is_bounded() -> None:
    assert sum("split(" in line for line in trace("    repeat(cut, C)", 2**20).lines) == 16


def test_draws_of_what_is_repeated_are_decisions_of_their_own() -> None:
    found = trace("    repeat(drawn, C)", 30)
    assert len(found.draws) == sum("split(" in line for line in found.lines)
    assert all(d.title.startswith("drawn.f") for d in found.draws)


def test_a_refusal_that_nothing_attempts_ends_the_schedule() -> None:
    with pytest.raises(ScheduleRefusal):
        trace("    apply(rows, [C.loops[-1]])")


@pytest.mark.parametrize(
    ("call", "code", "says"),
    [
        ("attempt(rows, C)", "E0248", "its `l` is a loop, not a block"),
        ("apply(cut, C.loops)", "E0248", "its `b` is a block, not a loop"),
        ("apply(cut, C)", "E0240", "takes a list of"),
        ("repeat(cut, C, 4, 5)", "E0224", "takes 3 arguments"),
        ("repeat(cut(size=2))", "E0224", "needs `x`"),
    ],
)
def test_what_does_not_fit_is_found_by_check(call: str, code: str, says: str) -> None:
    found = schedule("    " + call, 8).errors
    assert [d.code for d in found] == [code]
    assert says in found[0].message


def test_a_module_that_applies_itself_by_another_is_refused() -> None:
    text = HEAD + "module again(b: Block) { attempt(again, b) }\nschedule s for product { again(C) }\n"
    checked = load_file(Source("t.tsched", text + "task t = product(M=4, N=4, K=4) with s\n"))
    with pytest.raises(TschedError) as e:
        task_space(checked, "t", Target()).sample(np.random.default_rng(0))
    assert [d.code for d in e.value.diagnostics] == ["E0539"]
