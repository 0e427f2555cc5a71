"""Outputs in the memory of inputs: the proof against runs of small nests with one array for both."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import Binary, Compare, Dim, Expr, Var, index, loads
from tensorc_dsl.ir.program import AT_ONCE, Block, Buffer, For, Iter, IterKind, LoopKind, Program, Stmt, Store
from tensorc_dsl.proof.sets.dependence import overwritten
from tests.affine.test_simplify import value
from tests.examples import examples
from tests.programs import load

LOOPS: tuple[str, ...] = ("i", "j")
Step = tuple[dict[str, int], int, Block]
kinds = st.sampled_from([LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.PARALLEL, LoopKind.VECTORIZED])


def subscripts() -> st.SearchStrategy[Expr]:
    names = st.sampled_from([Var("vi"), Var("vj")])
    sums = st.builds(
        lambda x, c, y, d: Binary("+", Binary("+", Binary("*", x, index(c)), y), index(d)),
        names, st.integers(-2, 4), names, st.integers(-2, 2),
    )  # fmt: skip
    cut = st.builds(lambda op, e, n: Binary(op, e, index(n)), st.sampled_from(["/", "%"]), sums, st.integers(2, 3))
    return st.one_of(names, sums, cut)


def guards() -> st.SearchStrategy[tuple[Expr, ...]]:
    one = st.builds(
        lambda op, c: Compare(op, Var("i"), Binary("+", Var("j"), index(c))),
        st.sampled_from(["<", ">=", "=="]), st.integers(-1, 2),
    )  # fmt: skip
    return st.lists(one, max_size=1).map(tuple)


def block(name: str, target: Expr, source: Expr, where: tuple[Expr, ...]) -> Block:
    iters = tuple(Iter(f"v{n}", IterKind.SPATIAL, index(9), Var(n)) for n in LOOPS)
    return Block(name, iters, (Store("Z", (target,), load("Y", source)),), where=where)


def nest(
    body: tuple[Stmt, ...], sizes: tuple[Expr, ...], how: tuple[LoopKind, ...], dims: tuple[Dim, ...] = ()
) -> Program:
    for var, size, kind in reversed(list(zip(LOOPS, sizes, how, strict=True))):
        body = (For(var, size, body, kind),)
    arrays = tuple(Buffer(n, F32, (index(99),)) for n in ("Y", "Z"))
    return Program("p", arrays, (), body, dims)


def lost(blocks: tuple[Block, ...], sizes: tuple[int, ...], how: tuple[LoopKind, ...]) -> bool:
    """Whether some instance reads an element that another one writes before or at once."""
    every: list[Step] = []
    for point in product(*map(range, sizes)):
        at = dict(zip(LOOPS, point, strict=True))
        every += [(at, n, b) for n, b in enumerate(blocks) if all(value(c, at) for c in b.where)]
    for (w_at, w_n, w), (r_at, r_n, r) in product(every, every):
        inside_w, inside_r = ({f"v{k}": v for k, v in at.items()} for at in (w_at, r_at))
        (read,) = loads(r.body[0].value)
        (source,) = read.indices
        if value(w.body[0].indices[0], inside_w) != value(source, inside_r):
            continue
        differs = next((k for k, var in enumerate(LOOPS) if w_at[var] != r_at[var]), None)
        if differs is None:
            if w_n < r_n:
                return True
        elif how[differs] in AT_ONCE or w_at[LOOPS[differs]] < r_at[LOOPS[differs]]:
            return True
    return False


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.tuples(subscripts(), subscripts(), guards()), min_size=1, max_size=2),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(kinds, kinds),
)
def test_the_proof_is_exact_for_small_nests(
    parts: list[tuple[Expr, Expr, tuple[Expr, ...]]], sizes: tuple[int, int], how: tuple[LoopKind, LoopKind]
) -> None:
    blocks = tuple(block(f"S{n}", *p) for n, p in enumerate(parts))
    program = nest(blocks, tuple(map(index, sizes)), how)
    assert (overwritten(program, "Z", "Y") is not None) == lost(blocks, sizes, how)


VI, VJ = Var("vi"), Var("vj")
ROW = Binary("+", Binary("*", VI, index(9)), VJ)


@pytest.mark.parametrize("kind", [LoopKind.SERIAL, *AT_ONCE])
def test_elements_are_updated_in_any_order(kind: LoopKind) -> None:
    sizes = (Dim("N"), index(9))
    program = nest((block("S", ROW, ROW, ()),), sizes, (kind, kind), (Dim("N"),))
    assert overwritten(program, "Z", "Y") is None


@pytest.mark.parametrize(("shift", "kind", "proved"), [
    (1, LoopKind.SERIAL, True),
    (-1, LoopKind.SERIAL, False),
    (1, LoopKind.PARALLEL, False),
    (1, LoopKind.BOUND, False),
    (1, LoopKind.VECTORIZED, False),
])  # fmt: skip
def test_a_shift_is_updated_from_its_front_alone(shift: int, kind: LoopKind, proved: bool) -> None:
    source = Binary("+", VI, index(shift))
    program = nest((block("S", VI, source, ()),), (Dim("N"), index(1)), (kind, LoopKind.SERIAL), (Dim("N"),))
    assert (overwritten(program, "Z", "Y") is None) == proved


@pytest.mark.parametrize("kind", [LoopKind.PIPELINED, LoopKind.TENSORIZED])
def test_loops_with_an_order_of_their_own_update_nothing(kind: LoopKind) -> None:
    program = nest((block("S", ROW, ROW, ()),), (index(9), index(9)), (kind, LoopKind.SERIAL))
    found = overwritten(program, "Z", "Y")
    assert found is not None and found.loop == "i"


def test_an_element_read_again_is_lost() -> None:
    blocks = (block("S", VI, VI, ()), block("T", Binary("+", VI, index(50)), VI, ()))
    program = nest(blocks, (index(9), index(1)), (LoopKind.SERIAL, LoopKind.SERIAL))
    assert str(overwritten(program, "Z", "Y")) == "`T` may read elements of `Y` that `S` overwrites earlier"


def test_products_of_loops_are_not_proved() -> None:
    program = nest((block("S", VI, Binary("*", VI, VJ), ()),), (index(9), index(9)), (LoopKind.SERIAL, LoopKind.SERIAL))
    assert overwritten(program, "Z", "Y") is not None
