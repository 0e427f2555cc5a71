"""Steps that move, copy, inline and change layouts: whole schedules, the traps, and random sequences of steps."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Logic,
    Select,
    Var,
    add,
    constant,
    floordiv,
    floormod,
    index,
    mul,
    sub,
)
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Block, For, Program, blocks, find_block, find_loop, walk
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, BufferRef, IndexMap, LoopRef, ScheduleRefusal
from tests.programs import buffer, conv2d, elementwise, load, matmul, random_inputs, softmax, stage, v
from tests.steps import calls


class Schedule:
    """A program under steps; names become references by what they name."""

    def __init__(self, program: Program) -> None:
        self.before = self.program = program

    def do(self, step: str, *args: object, **kwargs: object) -> tuple[str, ...]:
        names = {s.var if isinstance(s, For) else s.name for _, s in walk(self.program.body) if isinstance(s, For)}
        refs = [(LoopRef(a) if a in names else BlockRef(a)) if isinstance(a, str) else a for a in args]
        rewrite = apply(self.program, step, *refs, **kwargs)
        self.program = rewrite.program
        found = rewrite.results
        return tuple(r.name for r in (found if isinstance(found, tuple) else () if found is None else (found,)))

    def check(self) -> None:
        """The program is well formed and computes what it did, whatever the order of its parallel loops."""
        verify(self.program)
        inputs = random_inputs(self.before)
        expected = interpret(self.before, inputs)
        for order in ("forward", "reversed", "shuffled"):
            found = interpret(self.program, inputs, order)
            for name, values in expected.items():
                np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)


def panels(lanes: int) -> IndexMap:
    j = Var("j")
    return IndexMap(("k", "j"), (floordiv(j, index(lanes)), Var("k"), floormod(j, index(lanes))))


def tiled_matmul(s: Schedule, tiles: tuple[int, ...], lanes: int, packed_at: str | None) -> None:
    """Register tiles, a copy of C per tile, panels of B: the schedule of a fast CPU kernel."""
    i1, i2, i3, j1, j2, j3, k1 = tiles
    s.do("cache_write", "C")
    i = s.do("split", "i", (None, i1, i2, i3), partial=True)
    j = s.do("split", "j", (None, j1, j2, j3), partial=True)
    k = s.do("split", "k", (None, k1), partial=True)
    s.do("reorder", i[0], j[0], i[1], j[1], k[0], i[2], j[2], k[1], i[3], j[3])
    s.do("reverse_compute_at", "C_write", j[1])
    s.do("cache_read", "C", BufferRef("B"))
    s.do("transform_layout", BufferRef("B_global"), panels(lanes))
    if packed_at is not None:
        s.do("compute_at", "B_global", packed_at)
    s.do("decompose_reduction", "C", k[0])
    s.do("parallel", i[0])
    s.do("vectorize", j[3])


@pytest.mark.parametrize("packed_at", [None, "i_0", "j_0", "k_0"])
@pytest.mark.parametrize(
    ("sizes", "tiles", "lanes"),
    [
        ((8, 12, 6), (1, 2, 2, 1, 3, 2, 3), 4),
        ((7, 11, 5), (2, 1, 2, 1, 2, 2, 2), 4),
        ((1, 1, 1), (1, 1, 1, 1, 1, 1, 1), 8),
    ],
)
def test_tiled_matmul(sizes: tuple[int, int, int], tiles: tuple[int, ...], lanes: int, packed_at: str | None) -> None:
    s = Schedule(matmul(*sizes))
    tiled_matmul(s, tiles, lanes, packed_at)
    s.check()


def test_a_packed_panel_is_the_one_of_its_tile() -> None:
    s = Schedule(matmul(64, 64, 32))
    tiled_matmul(s, (2, 2, 4, 2, 1, 16, 8), 16, "j_0")
    around, _ = find_block(s.program, "B_global")
    at = [loop.var for loop in around].index("j_0")
    assert [constant(loop.extent) for loop in around[at + 1 :]] == [2, 32, 16]
    assert find_block(s.program, "B_global")[1].where == ()


def test_steps_are_quick() -> None:
    s = Schedule(matmul(512, 512, 512))
    # 12 steps; most calls walk the program and simplify what is in it.
    assert calls(lambda: tiled_matmul(s, (4, 4, 4, 2, 2, 16, 8), 16, "j_0")) < 70_000


@pytest.mark.parametrize("tile", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize(("size", "stride"), [(7, 1), (8, 2), (11, 3)])
def test_trap_09_overlapping_windows(tile: int, size: int, stride: int) -> None:
    s = Schedule(conv2d(size, 5, 2, 2, 3, 3, stride=stride, pad=1))
    s.do("split", "h_1", (None, tile), partial=True)
    s.do("compute_at", "P", "h_1_0")
    rows = constant(find_loop(s.program, "h")[1].extent)
    assert rows == min((tile - 1) * stride + 3, size + 2)
    s.check()


def test_trap_09_stride_2_window_3_tile_8_needs_17() -> None:
    s = Schedule(conv2d(32, 3, 1, 1, 3, 3, stride=2, pad=1))
    s.do("split", "h_1", (None, 8), partial=True)
    s.do("compute_at", "P", "h_1_0")
    assert constant(find_loop(s.program, "h")[1].extent) == 17
    assert s.program.buffer("P").scope == "local"


def shifted(n: int) -> Program:
    """A stage whose elements are read one back, behind a condition: the first tile asks for element -1."""
    a = stage("A", {"i": n}, Binary("*", load("X", v("i")), Const(2.0, F32)))
    inside = Logic("and", Compare("<=", index(1), v("i")), Compare("<", v("i"), index(n + 1)))
    y = stage("Y", {"i": n + 2}, Select(inside, load("A", sub(v("i"), index(1))), Const(0.0, F32)), taken=("i",))
    return Program("shifted", (buffer("X", n), buffer("Y", n + 2)), (buffer("A", n),), (a, y))


@pytest.mark.parametrize("n", [1, 2, 5, 7, 12])
@pytest.mark.parametrize("tile", [1, 2, 3, 5])
def test_trap_17_negative_lower_bound(n: int, tile: int) -> None:
    s = Schedule(shifted(n))
    i0, _ = s.do("split", "i_1", (None, tile), partial=True)
    s.do("compute_at", "A", i0)
    s.check()


def test_trap_11_inlining_keeps_the_guard() -> None:
    s = Schedule(conv2d(5, 4, 1, 1, 3, 3, stride=1, pad=1))
    s.do("compute_inline", "P")
    assert [b.name for b in blocks(s.program)] == ["Y"]
    assert " if " in format_program(s.program)
    s.check()


def test_trap_11_a_consumer_runs_for_its_whole_domain() -> None:
    s = Schedule(matmul(7, 5, 3))
    s.do("cache_write", "C")
    i0, _ = s.do("split", "i", (None, 4), partial=True)
    s.do("reverse_compute_at", "C_write", i0)
    s.check()


def test_parallel_tiles_recompute_in_buffers_of_their_own() -> None:
    s = Schedule(conv2d(9, 3, 1, 2, 3, 3, stride=1, pad=1))
    h0, _ = s.do("split", "h_1", (None, 2), partial=True)
    s.do("parallel", h0)
    s.do("compute_at", "P", h0)
    s.check()


def test_softmax_row_by_row() -> None:
    s = Schedule(softmax(5, 7))
    s.do("compute_at", "s", "i_3")
    s.do("compute_at", "e", "i_3")
    s.do("compute_at", "m", "i_3")
    s.do("parallel", "i_3")
    s.check()
    assert len(s.program.body) == 1


def test_softmax_consumers_first_or_not_at_all() -> None:
    s = Schedule(softmax(5, 7))
    with pytest.raises(ScheduleRefusal, match="E0356"):
        s.do("compute_at", "e", "i_3")


def test_a_producer_follows_its_consumer_deeper() -> None:
    s = Schedule(softmax(4, 6))
    for block in ("s", "e", "m"):
        s.do("compute_at", block, "i_3")
    j0, _ = s.do("split", "j_3", (None, 4), partial=True)
    with pytest.raises(ScheduleRefusal, match="E0356"):  # `s` reads all of a row of `e`, outside of the loop
        s.do("compute_at", "e", j0)
    s.do("compute_inline", "e")
    s.check()


def blur(n: int) -> Program:
    inside = Logic("and", Compare("<=", index(2), v("i")), Compare("<", v("i"), index(n + 2)))
    p = stage("P", {"i": n + 4}, Select(inside, load("X", sub(v("i"), index(2))), Const(0.0, F32)))
    near = [load("P", add(v("i"), index(d))) for d in range(3)]
    q = stage("Q", {"i": n + 2}, Binary("+", Binary("+", near[0], near[1]), near[2]), taken=("i",))
    y = stage("Y", {"i": n}, load("Q", add(v("i"), v("r"))), {"r": 3}, taken=("i", "i_1"))
    return Program("blur", (buffer("X", n), buffer("Y", n)), (buffer("P", n + 4), buffer("Q", n + 2)), (p, q, y))


def matmul_relu(m: int, n: int, k: int) -> Program:
    """T = A · B; D = max(T, 1); C = D + T."""
    p = matmul(m, n, k)
    x = Binary("*", load("A", v("i"), v("k")), load("B", v("k"), v("j")))
    at = {"i": m, "j": n}
    body = (
        stage("T", at, x, {"k": k}),
        stage("D", at, Binary("max", load("T", v("i"), v("j")), Const(1.0, F32)), taken=("i", "j")),
        stage(
            "C", at, Binary("+", load("D", v("i"), v("j")), load("T", v("i"), v("j"))), taken=("i", "j", "i_1", "j_1")
        ),
    )
    return Program("matmul_relu", p.params, (buffer("T", m, n), buffer("D", m, n)), body)


def random_step(p: Program, rng: random.Random) -> tuple[str, tuple[object, ...], dict[str, object]]:
    """Some step with arguments of the right kinds, whether or not it applies."""
    found = list(walk(p.body))
    block = rng.choice([s for _, s in found if isinstance(s, Block)])
    loops = [s for _, s in found if isinstance(s, For)]
    loop = LoopRef(rng.choice(loops).var) if loops else LoopRef("gone")
    names = [b.name for b in (*p.params, *p.buffers)]
    steps: list[tuple[str, tuple[object, ...], dict[str, object]]] = [
        ("split", (loop, (None, rng.randint(1, 4))), {"partial": True}),
        ("split", (loop, (rng.randint(1, 4), None)), {"partial": True}),
        ("fuse", tuple(LoopRef(x.var) for x in find_block(p, block.name)[0][:2]), {}),
        ("reorder", tuple(LoopRef(x.var) for x in rng.sample(find_block(p, block.name)[0], 2)), {})
        if len(find_block(p, block.name)[0]) > 1
        else ("compute_inline", (BlockRef(block.name),), {}),
        ("parallel", (loop,), {}),
        ("compute_at", (BlockRef(block.name), loop), {}),
        ("compute_at", (BlockRef(block.name), loop), {}),
        ("reverse_compute_at", (BlockRef(block.name), loop), {}),
        ("reverse_compute_at", (BlockRef(block.name), loop), {}),
        ("compute_inline", (BlockRef(block.name),), {}),
        ("cache_read", (BlockRef(block.name), BufferRef(rng.choice(names))), {}),
        ("cache_write", (BlockRef(block.name),), {"scope": rng.choice(["local", "global"])}),
        ("decompose_reduction", (BlockRef(block.name), loop), {}),
        ("transform_layout", random_layout(p, rng), {"reorder_block": rng.random() < 0.5}),
    ]
    return rng.choice(steps)


def random_layout(p: Program, rng: random.Random) -> tuple[BufferRef, IndexMap]:
    b = rng.choice((*p.params, *p.buffers))
    params = tuple("abcdefg"[: len(b.shape)])
    old: list[Expr] = [Var(n) for n in params]
    d, f = rng.randrange(len(old)), index(rng.randint(1, 4))
    rest = [e for n, e in enumerate(old) if n != d]
    layouts = [
        [floordiv(old[d], f), *rest, floormod(old[d], f)],
        [floordiv(old[d], f), floormod(old[d], f), *rest],
        rng.sample(old, len(old)),
        [add(mul(old[0], b.shape[-1]), old[-1]), *old[1:-1]],
    ]
    return BufferRef(b.name), IndexMap(params, tuple(rng.choice(layouts)))


BASES: list[Callable[[random.Random], Program]] = [
    lambda r: matmul(r.randint(1, 7), r.randint(1, 7), r.randint(1, 5)),
    lambda r: matmul_relu(r.randint(1, 6), r.randint(1, 6), r.randint(1, 4)),
    lambda r: softmax(r.randint(1, 6), r.randint(1, 6)),
    lambda r: elementwise(r.randint(1, 7), r.randint(1, 7)),
    lambda r: blur(r.choice([1, 4, 5, 7, 12])),
    lambda r: conv2d(r.choice([5, 7]), 4, 2, 2, 3, 3, stride=r.randint(1, 3), pad=r.randint(0, 1)),
]


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(60))
def test_random_steps_keep_the_meaning(seed: int) -> None:
    rng = random.Random(seed)
    s = Schedule(BASES[seed % len(BASES)](rng))
    for _ in range(rng.randint(5, 40)):
        step, args, kwargs = random_step(s.program, rng)
        try:
            s.program = apply(s.program, step, *args, **kwargs).program
        except ScheduleRefusal:
            continue
    s.check()
