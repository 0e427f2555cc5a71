"""Dependence questions against brute force: all pairs of instances of small nests."""

from __future__ import annotations

from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc_dsl.ir.dtypes import F32, I32
from tensorc_dsl.ir.expr import Binary, Compare, Const, Dim, Expr, Load, Var, index
from tensorc_dsl.ir.program import Block, Buffer, For, Iter, IterKind, Program, Store, find_loop
from tensorc_dsl.ir.reductions import is_fold
from tensorc_dsl.proof.sets.accesses import accesses, is_private, written
from tensorc_dsl.proof.sets.dependence import broken, carried, happens_before, overtaken
from tests.affine.test_simplify import value
from tests.examples import examples
from tests.programs import buffer, conv2d, load, matmul, softmax

LOOPS: tuple[str, ...] = ("i", "j", "k")
Instance = dict[str, int]


def subscripts() -> st.SearchStrategy[Expr]:
    """Subscripts over the iterators vi, vj, vk: sums, quotients, remainders."""
    names = st.sampled_from([Var("vi"), Var("vj"), Var("vk")])
    sums = st.builds(
        lambda x, c, y, d: Binary("+", Binary("+", Binary("*", x, index(c)), y), index(d)),
        names, st.integers(-2, 4), names, st.integers(-1, 2),
    )  # fmt: skip
    cut = st.builds(lambda op, e, n: Binary(op, e, index(n)), st.sampled_from(["/", "%"]), sums, st.integers(2, 3))
    return st.one_of(names, sums, cut, st.integers(0, 2).map(index))


def guards() -> st.SearchStrategy[tuple[Expr, ...]]:
    one = st.builds(
        lambda op, x, y, c: Compare(op, Var(x), Binary("+", Var(y), index(c))),
        st.sampled_from(["<", ">=", "=="]), st.sampled_from(LOOPS), st.sampled_from(LOOPS), st.integers(-1, 2),
    )  # fmt: skip
    return st.lists(one, max_size=1).map(tuple)


def block(name: str, target: Expr, source: Expr, where: tuple[Expr, ...]) -> Block:
    iters = tuple(Iter(f"v{n}", IterKind.SPATIAL, index(9), Var(n)) for n in LOOPS)
    return Block(name, iters, (Store("W", (target,), load("W", source)),), where=where)


extents = st.tuples(*[st.integers(1, 3)] * 3)
one_block = st.builds(block, st.just("S"), subscripts(), subscripts(), guards())
two_blocks = st.tuples(
    st.builds(block, st.just("S"), subscripts(), subscripts(), guards()),
    st.builds(block, st.just("T"), subscripts(), subscripts(), guards()),
)
bodies = st.one_of(one_block.map(lambda b: (b,)), two_blocks)


def nest(body: tuple[Block, ...], sizes: tuple[int, ...]) -> Program:
    stmts: tuple[For | Block, ...] = body
    for name, size in reversed(list(zip(LOOPS, sizes, strict=True))):
        stmts = (For(name, index(size), stmts),)
    return Program("p", (buffer("W", 99),), (), stmts)


def events(body: tuple[Block, ...], sizes: tuple[int, ...]) -> list[tuple[Instance, int, int, bool]]:
    """(iteration, place in the body, element, is write) for each access, in the order they happen."""
    out: list[tuple[Instance, int, int, bool]] = []
    for point in product(*map(range, sizes)):
        env: Instance = dict(zip(LOOPS, point, strict=True))
        inner = {f"v{n}": x for n, x in env.items()}
        for n, b in enumerate(body):
            if all(value(c, env) for c in b.where):
                store = b.body[0]
                assert isinstance(store.value, Load)
                out.append((env, 2 * n, value(store.value.indices[0], inner), False))
                out.append((env, 2 * n + 1, value(store.indices[0], inner), True))
    return out


@given(bodies, extents, st.sampled_from(LOOPS))
@settings(max_examples=examples(75), deadline=None)
def test_carried_is_exact(body: tuple[Block, ...], sizes: tuple[int, ...], loop: str) -> None:
    outer = LOOPS[: LOOPS.index(loop)]
    happened = events(body, sizes)
    expected = any(
        e == f and (w or x) and a[loop] != b[loop] and all(a[n] == b[n] for n in outer)
        for a, _, e, w in happened
        for b, _, f, x in happened
    )
    assert (carried(nest(body, sizes), loop) is not None) == expected


@given(bodies, extents, st.permutations(LOOPS))
@settings(max_examples=examples(75), deadline=None)
def test_broken_is_exact(body: tuple[Block, ...], sizes: tuple[int, ...], order: list[str]) -> None:
    happened = events(body, sizes)
    expected = any(
        e == f and (w or x) and [b[n] for n in order] < [a[n] for n in order]
        for n, (a, _, e, w) in enumerate(happened)
        for b, _, f, x in happened[n + 1 :]
    )
    assert (broken(nest(body, sizes), order) is not None) == expected


@given(two_blocks, extents)
@settings(max_examples=examples(40), deadline=None)
def test_happens_before_is_exact(body: tuple[Block, ...], sizes: tuple[int, ...]) -> None:
    program = nest(body, sizes)
    found = accesses((), program.body, written(program.body))
    happened = events(body, sizes)
    for a in found:
        for b in found:
            expected = any(
                p == a.seq and q == b.seq and e == f
                for n, (_, p, e, _) in enumerate(happened)
                for _, q, f, _ in happened[n + 1 :]
            )
            assert happens_before(a, b, 0) == expected


def test_matmul_may_take_any_order() -> None:
    program = matmul(4, 5, 6)
    assert all(broken(program, order) is None for order in permutations("ijk"))
    assert carried(program, "i") is None
    assert carried(program, "j") is None
    over = carried(program, "k")
    assert over is not None
    assert over.reduction


def test_a_loop_of_one_iteration_carries_nothing() -> None:
    assert carried(matmul(4, 5, 1), "k") is None


def test_convolution_reads_overlap_but_writes_do_not() -> None:
    program = conv2d(7, 7, 2, 3, 3, 3, stride=2, pad=1)
    assert [v for v in ("h_1", "w_1", "co", "kh", "kw", "ci_1") if carried(program, v)] == ["kh", "kw", "ci_1"]


def test_subscripts_that_are_not_affine_may_be_anything() -> None:
    gather = Load("I", (Var("vi"),), I32)
    b = Block("B", (Iter("vi", IterKind.SPATIAL, index(4), Var("i")),), (Store("W", (gather,), load("A", Var("vi"))),))
    params = (Buffer("I", I32, (index(4),)), buffer("A", 4), buffer("W", 4))
    assert carried(Program("p", params, (), (For("i", index(4), (b,)),)), "i") is not None


def test_open_dimensions() -> None:
    n = Dim("N")
    iters = (Iter("vi", IterKind.SPATIAL, n, Var("i")), Iter("vj", IterKind.REDUCE, n, Var("j")))
    update = Binary("+", load("W", Var("vi")), load("A", Var("vi"), Var("vj")))
    b = Block("W", iters, (Store("W", (Var("vi"),), update),), (Store("W", (Var("vi"),), Const(0.0, F32)),))
    params = (Buffer("A", F32, (n, n)), Buffer("W", F32, (n,)))
    program = Program("p", params, (), (For("i", n, (For("j", n, (b,)),)),), dims=(n,))
    assert carried(program, "i") is None
    assert carried(program, "j") is not None
    assert broken(program, ("j", "i")) is None


@pytest.mark.parametrize(
    ("e", "expected"),
    [
        (Binary("+", load("C", Var("vi")), load("A", Var("vk"))), True),
        (Binary("max", load("C", Var("vi")), load("A", Var("vk"))), True),
        (Binary("-", load("C", Var("vi")), load("A", Var("vk"))), False),
        (Binary("+", load("A", Var("vk")), load("C", Var("vi"))), False),
        (Binary("+", load("C", Var("vk")), load("A", Var("vk"))), False),
        (Binary("+", load("C", Var("vi")), load("C", Var("vk"))), False),
        (load("A", Var("vk")), False),
    ],
)
def test_updates(e: Expr, expected: bool) -> None:
    assert is_fold(Store("C", (Var("vi"),), e)) == expected


def test_an_initialisation_moves_before_stages_that_do_not_touch_its_buffer() -> None:
    program = softmax(3, 4)
    stages = [find_loop(program, v)[1] for v in ("i", "i_1", "i_2")]
    assert overtaken((), tuple(stages), "s") is None


def test_an_initialisation_does_not_move_before_a_use_of_the_last_sums() -> None:
    program = softmax(3, 4)
    sums, ratios = (find_loop(program, v)[1] for v in ("i_2", "i_3"))
    found = overtaken((), (ratios, sums), "s")
    assert found is not None
    assert (found.buffer, found.first, found.second) == ("s", "Y", "s")


def test_only_buffers_with_another_scope_are_private() -> None:
    program = conv2d(4, 4, 1, 1, 3, 3, pad=1)
    assert not is_private(program, "P", "h")
