"""Draws say whose they are: the module, the name in its text, and what it was applied to."""

from __future__ import annotations

import numpy as np

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.target import Target

TEXT = """\
compute add(A: f32[M, N]) -> B: f32[M, N] { B[i, j] = A[i, j] + 1.0 }
module inner(b: Block, l: Loop) { let width ~ sample_categorical([2, 4]); split(l, [_, width]) }
module tiles(b: Block) {
    for l in b.loops { let factors ~ sample_perfect_tile(l, parts=2); split(l, factors) }
    inner(b, b.loops[0])
}
schedule s for add {
    let own ~ sample_categorical([1, 2])
    tiles(B)
    annotate(B, "own", own)
}
task small = add(M=16, N=32) with s
"""


def test_a_draw_of_a_module_says_whose_it_is() -> None:
    trace = task_space(load_source(Source("t.tsched", TEXT)), "small", Target()).sample(np.random.default_rng(0))
    assert [(d.name, d.title) for d in trace.draws] == [
        ("own", "own"),
        ("factors", "tiles.factors of B"),
        ("factors_1", "tiles.factors[1] of B"),
        ("width", "inner.width of B"),
    ]
    behind = [line.partition("  // ")[2] for line in trace.titled.splitlines() if " ~ " in line]
    assert behind == ["", *(d.title for d in trace.draws[1:])]
    assert "//" not in trace.text


def test_a_titled_trace_is_read_back_as_the_same() -> None:
    checked = load_source(Source("t.tsched", TEXT))
    trace = task_space(checked, "small", Target()).sample(np.random.default_rng(0))
    text = TEXT.replace("with s\n", "with s_1\n") + trace.titled.replace("schedule s ", "schedule s_1 ")
    again = task_space(load_source(Source("t.tsched", text)), "small", Target()).sample(np.random.default_rng(1))
    assert again.lines == trace.lines and again.program == trace.program
