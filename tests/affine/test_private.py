"""Buffers that are private to an iteration, against brute force over all reads and writes."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import Binary, Compare, Const, Expr, Var, index, substitute
from tensorc_dsl.ir.program import Block, For, Iter, IterKind, Program, Store
from tensorc_dsl.proof.sets.accesses import is_private
from tests.affine.test_simplify import value
from tests.examples import examples
from tests.programs import buffer, load


def sums(names: tuple[str, ...]) -> st.SearchStrategy[Expr]:
    """h*a + x*b + y*c + d, sometimes cut by a quotient or a remainder."""
    linear = st.builds(
        lambda cs, d: _sum([Binary("*", Var(n), index(c)) for n, c in zip(names, cs, strict=True)], d),
        st.tuples(*[st.integers(0, 3)] * len(names)), st.integers(0, 2),
    )  # fmt: skip
    cut = st.builds(lambda op, e, n: Binary(op, e, index(n)), st.sampled_from(["/", "%"]), linear, st.integers(2, 4))
    return st.one_of(linear, linear, cut)


def _sum(parts: list[Expr], constant: int) -> Expr:
    out: Expr = index(constant)
    for p in parts:
        out = Binary("+", p, out)
    return out


def guards(names: tuple[str, ...]) -> st.SearchStrategy[tuple[Expr, ...]]:
    one = st.builds(
        lambda op, x, c: Compare(op, Var(x), index(c)), st.sampled_from(["<", ">="]), st.sampled_from(names),
        st.integers(0, 2),
    )  # fmt: skip
    return st.lists(one, max_size=1).map(tuple)


WRITER, READER = ("h", "x", "y"), ("h", "u", "z")
sizes = st.tuples(*[st.integers(1, 3)] * 5)


@given(sums(WRITER), guards(WRITER), sums(READER), guards(READER), sizes, st.booleans())
@settings(max_examples=examples(125), deadline=None)
def test_exact(
    target: Expr, when: tuple[Expr, ...], source: Expr, needed: tuple[Expr, ...], size: tuple[int, ...], first: bool
) -> None:
    names: tuple[str, ...] = ("h", "x", "y", "u", "z")
    extents: dict[str, int] = dict(zip(names, size, strict=True))
    write = _nest("W", WRITER, target, Const(1.0, F32), when, "t", extents)
    read = _nest("R", READER, index(0), load("t", _over(source, READER)), needed, "O", extents)
    loop = For("h", index(extents["h"]), (write, read) if first else (read, write))
    program = Program("p", (buffer("O", 1),), (buffer("t", 99, scope="local"),), (loop,))
    assert is_private(program, "t", "h") == all(
        _elements(source, needed, READER, extents, h)
        <= (_elements(target, when, WRITER, extents, h) if first else set())
        for h in range(extents["h"])
    )


offsets = st.lists(st.integers(-1, 3), min_size=2, max_size=4)


@given(sums(WRITER), sums(READER), offsets, st.sampled_from([0, 2, 5]), sizes, st.booleans())
@settings(max_examples=examples(75), deadline=None)
def test_windows(target: Expr, source: Expr, at: list[int], wrap: int, size: tuple[int, ...], twice: bool) -> None:
    """Reads at several offsets are answered together, which may not answer more than each of them."""
    names: tuple[str, ...] = ("h", "x", "y", "u", "z")
    extents: dict[str, int] = dict(zip(names, size, strict=True))
    each: list[Expr] = [Binary("+", source, index(n)) for n in at]
    if wrap:
        each = [Binary("%", e, index(wrap)) for e in each]
    value = load("t", _over(each[0], READER))
    for e in each[1:] + each * twice:
        value = Binary("+", value, load("t", _over(e, READER)))
    write = _nest("W", WRITER, target, Const(1.0, F32), (), "t", extents)
    read = _nest("R", READER, index(0), value, (), "O", extents)
    loop = For("h", index(extents["h"]), (write, read))
    program = Program("p", (buffer("O", 1),), (buffer("t", 99, scope="local"),), (loop,))
    assert is_private(program, "t", "h") == all(
        _elements(e, (), READER, extents, h) <= _elements(target, (), WRITER, extents, h)
        for e in each
        for h in range(extents["h"])
    )


def _over(e: Expr, names: tuple[str, ...]) -> Expr:
    return substitute(e, {n: Var(f"v{n}") for n in names})


def _nest(
    name: str, loops: tuple[str, ...], target: Expr, stored: Expr, where: tuple[Expr, ...], out: str,
    extents: dict[str, int],
) -> For | Block:  # fmt: skip
    iters = tuple(Iter(f"v{n}", IterKind.SPATIAL, index(9), Var(n)) for n in loops)
    stmt: For | Block = Block(name, iters, (Store(out, (_over(target, loops),), stored),), where=where)
    for n in reversed(loops[1:]):
        stmt = For(n, index(extents[n]), (stmt,))
    return stmt


def _elements(e: Expr, where: tuple[Expr, ...], names: tuple[str, ...], extents: dict[str, int], h: int) -> set[int]:
    envs = [dict(zip(names, (h, *p), strict=True)) for p in product(*(range(extents[n]) for n in names[1:]))]
    return {value(e, env) for env in envs if all(value(c, env) for c in where)}


def test_a_buffer_read_in_another_nest_is_not_private() -> None:
    write = _nest("W", ("i", "j"), Var("j"), Const(1.0, F32), (), "t", {"j": 3})
    read = _nest("R", ("k", "l"), index(0), load("t", Var("vl")), (), "O", {"l": 3})
    body = (For("i", index(2), (write,)), For("k", index(2), (read,)))
    program = Program("p", (buffer("O", 1),), (buffer("t", 3, scope="local"),), body)
    assert not is_private(program, "t", "i")
    assert not is_private(program, "t", "k")
