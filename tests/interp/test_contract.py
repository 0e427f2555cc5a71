"""The examples of the language's description."""

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import Trace
from tests.interp.spaces import COMPUTES, again, rng, space

MODULES = """
/// Cut every loop of `b` and interleave the tiles in the order `structure` spells:
/// S stands for a tile of every spatial loop, R for a tile of every reduction loop.
module multi_level_tiling(b: Block, structure: str = "SSRSRS", max_innermost: int = 64)
when b.has_reuse
{
    let tiles = for l in b.loops {
        let factors ~ sample_perfect_tile(l, parts=structure.count(l.kind), max_innermost=max_innermost)
        yield split(l, factors)
    }
    reorder(interleave(structure, tiles))
    either {                                  // a choice of structure is part of the space
        let w = cache_write(b)
        reverse_compute_at(w, b.loops[structure.rfind("S", before="R")])
    } or {}
}

module unroll_root(p: Program, steps = [0, 16, 64, 512]) {
    let step ~ sample_categorical(steps)                       // equal weights
    let vec  ~ sample_categorical({4: 0.2, 8: 0.3, 16: 0.5})   // written weights
    annotate(p.root, "unroll.max_step", step)
}

space cpu for llvm {
    multi_level_tiling(structure="SSRSRS", max_innermost=64)
    unroll_root
}
"""

BLOCKED = """
/// A schedule for one compute, by hand, with as much left open as its author wants.
schedule blocked for matmul {
    let [i, j, k] = C.loops
    let [i0, i1] = split(i, [_, 14])
    let [j0, j1] = split(j, [_, 32])
    let ks ~ sample_perfect_tile(k, parts=2)
    let [k0, k1] = split(k, ks)
    let order ~ sample_permutation([i0, j0, k0])
    reorder(order, k1, i1, j1)
    parallel(order[0]); vectorize(j1); unroll(i1)
}
"""


def sampled(s: Space, count: int) -> list[Trace]:
    """The traces of some seeds that are not refused."""
    out: list[Trace] = []
    for n in range(count):
        try:
            out.append(s.sample(rng(n)))
        except ScheduleRefusal:
            continue
    return out


@pytest.mark.parametrize("text", [MODULES, BLOCKED])
def test_it_checks_expands_and_replays(text: str) -> None:
    codes = [d.code for d in load_file(Source("x", COMPUTES + text)).diagnostics]
    assert codes == (["W0202"] if text is MODULES else [])  # `vec` is there to show weights
    s = space(text, m=28, n=64, k=24)
    traces = sampled(s, 12)
    assert len(traces) > 4
    assert len({t.text for t in traces}) > 4
    for t in traces:
        verify(t.program)
        assert again(s, t.text)().text == t.text


def test_a_parallel_reduction_is_refused_and_not_drawn_around() -> None:
    s = space(BLOCKED, m=28, n=64, k=24)
    with pytest.raises(ScheduleRefusal, match="E0330"):
        s.replay({"order": (2, 0, 1), "ks": (4, 6)}, rng())


def test_a_trace_tells_a_buffer_from_the_block_of_its_name() -> None:
    """After `cache_write` the block `E` writes `E_local`, so that `E` alone would be this one in the trace."""
    s = space(
        "module m(p: Program) {\n"
        "    for b in p.blocks if not b.is_output { cache_write(b) }\n"
        "    for b in p.blocks if b.is_output { for x in b.reads { cache_read(b, x) } }\n"
        "}\nspace s for llvm { m }",
        compute="chain",
    )
    trace = s.sample(rng())
    assert trace.lines == ("let E_write = cache_write(E)", "let E_global = cache_read(Y, E_write)")
    assert again(s, trace.text)().program == trace.program
