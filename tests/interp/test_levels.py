"""Levels of tiles: `tile_levels` gives a list of loops for each letter, to be named, asked and put in order."""

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file, load_source
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.program import For, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.trace.trace import Trace
from tests.interp.spaces import rng

HEAD = """
use std.ops.{matmul}
schedule s for matmul {
    let kinds = for l in C.loops { yield l.kind }
    let tiles = for l in C.loops { yield split(l, [_, 2, 2] if l.kind == "S" else [_, 2]) }
"""
TAIL = "\n}\ntask t = matmul(M=16, N=32, K=8) with s\n"


def expand(steps: str) -> Trace:
    return task_space(load_source(Source("t.tsched", HEAD + steps + TAIL)), "t", Target()).sample(rng(0))


def order(trace: Trace) -> list[str]:
    return [s.var for _, s in walk(trace.program.body) if isinstance(s, For)]


LEVELS = ["i_0", "j_0", "k_0", "i_1", "j_1", "k_1", "i_2", "j_2"]


def test_a_list_of_levels_is_an_order() -> None:
    assert order(expand('reorder(tile_levels("SRSRS", tiles, kinds))')) == LEVELS


@pytest.mark.parametrize("kinds", ["", ", kinds"])
def test_levels_have_names(kinds: str) -> None:
    steps = f"""
    let levels = tile_levels("SRSRS", tiles{kinds})
    let [blocks, steps, inner, _, registers] = levels
    reorder(levels)
    for l in blocks {{ annotate(l, "is", "blocks") }}
    for l in steps {{ annotate(l, "is", "steps") }}
    for l in inner {{ annotate(l, "is", "inner") }}
    for l in registers {{ annotate(l, "is", "registers") }}
    """
    loops = [s for _, s in walk(expand(steps).program.body) if isinstance(s, For)]
    found = {x.var: dict(x.annotations).get("is") for x in loops}
    assert found == {
        "i_0": "blocks", "j_0": "blocks", "k_0": "steps", "i_1": "inner", "j_1": "inner", "k_1": None, "i_2": "registers",
        "j_2": "registers",
    }  # fmt: skip


def test_a_level_may_have_fewer_loops_or_none() -> None:
    found = expand('let levels = tile_levels("SSSS", tiles)\nif len(levels[3]) == 0 { unroll(levels[2][-1]) }')
    assert "unroll(j_2)" in found.text


def test_a_loop_knows_what_is_around_it() -> None:
    steps = """
    let levels = tile_levels("SRSRS", tiles)
    reorder(levels)
    unroll(levels[1][0].around[-1])
    if len(levels[0][0].around) == 0 and levels[2][1].around == concat(levels[0], levels[1], [levels[2][0]]) {
        vectorize(levels[4][-1])
    }
    """
    text = expand(steps).text
    assert "unroll(j_0)" in text
    assert "vectorize(j_2)" in text


def test_the_checker_knows_that_a_level_is_a_list() -> None:
    found = load_file(Source("t.tsched", HEAD + 'unroll(tile_levels("SRSRS", tiles)[0])' + TAIL)).errors
    assert [(d.code, d.message) for d in found] == [
        ("E0240", "`unroll` takes a loop for `loop`; this is a list of loops"),
    ]
