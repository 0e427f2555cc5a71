"""A repair that is a call can be copied into the text in the place of the refused call: it has the names of the text."""

from __future__ import annotations

import re

import pytest

import tensorc_dsl
from tensorc_dsl import ScheduleRefusal, handlers

TEXT = """\
compute chain(A: f32[M, N]) -> C: f32[M, N] {{
    let B[i, j] = A[i, j] + 1.0
    C[i, j] = exp(B[i, j])
}}
schedule s for chain {{
    {}
}}
task t = chain(M=30, N=20) with s
"""


def expand(steps: str) -> None:
    task = tensorc_dsl.loads(TEXT.format(steps), threads=1)["t"]
    handlers.trace(handlers.seed(task.space, 0)).get_trace()


@pytest.mark.parametrize(
    ("before", "refused", "repair"),
    [
        ("let [x, y] = C.loops", "split(x, [_, 8])", "split(x, [_, 8], partial=true)"),
        ("", "split(C.loops[0], [_, 8])", "split(C.loops[0], [_, 8], partial=true)"),
        ("let [x, y] = C.loops", "tile(x, y, [8, 4])", "tile(x, y, [8, 4], partial=true)"),
        ("", "tile(C.loops, [5, [_, 3]])", "tile(C.loops, [5, [_, 3]], partial=true)"),
        ("let [x, y] = C.loops", "fuse(y, x)", "fuse(x, y)"),
        ("let [x, y] = C.loops; let [a, b] = split(x, [_, 5])", "split(b, [_, 2])", "split(b, [_, 2], partial=true)"),
        ("let [a, b] = loop_partition(C.loops[0], [10])", "merge(a, b)", "merge(a, b, partial=true)"),
    ],
)
def test_a_repair_has_the_names_of_the_text(before: str, refused: str, repair: str) -> None:
    with pytest.raises(ScheduleRefusal) as caught:
        expand(f"{before}; {refused}")
    assert re.findall(r"`(\w+\(.*?\))`", caught.value.help) == [repair]
    expand(f"{before}; {repair}")


def test_loops_that_conditions_do_not_make_mergeable_are_kept_apart() -> None:
    with pytest.raises(ScheduleRefusal) as caught:
        expand("reorder(C.loops[1], C.loops[0]); merge(B.loops[0], C.loops[0])")
    assert caught.value.refusal.code == "E0603"
    assert "partial" not in caught.value.help
