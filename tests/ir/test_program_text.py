"""Programs as text: printed programs parse back to the same program, and errors have their places."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.dtypes import BOOL, F32, F64, I8, I32, INDEX, U8, DType, limits, nearest
from tensorc_dsl.ir.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    Var,
    index,
    loads,
)
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import (
    Axis,
    Block,
    Buffer,
    For,
    Iter,
    IterKind,
    LoopKind,
    Program,
    Stmt,
    Store,
    used_names,
    walk,
)
from tensorc_dsl.ir.verify import ProgramError, verify
from tests.examples import examples

M = Dim("M", 1, 4096)
BUFFERS = (
    Buffer("A", F32, (index(4), M)),
    Buffer("sum", F64, (index(3),)),
    Buffer("n8", I8, ()),
    Buffer("n32", I32, (index(2),), "local"),
    Buffer("u", U8, (index(2),)),
    Buffer("mask", BOOL, (index(1),)),
)
DTYPES = (F32, F64, I8, I32, U8, BOOL)


def parsed(text: str) -> Program:
    return parse_program(Source("p.tsched", text))


@cache
def _literal(t: DType) -> st.SearchStrategy[Expr]:
    if t == BOOL:
        values: st.SearchStrategy[Any] = st.booleans()
    elif t.is_float:
        fits = st.floats().filter(lambda x: not math.isfinite(x) or math.isfinite(nearest(x, t)))
        values = st.one_of(fits, st.sampled_from([math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0]))
    elif t == INDEX:
        values = st.integers(-99, 99)
    else:
        values = st.one_of(st.sampled_from(limits(t)), st.integers(*limits(t)))
    return values.map(lambda v: Const(v, t))


@cache
def indices(names: tuple[str, ...], depth: int = 2) -> st.SearchStrategy[Expr]:
    leaf = st.one_of(_literal(INDEX), st.sampled_from([*map(Var, names), M]))
    if depth == 0:
        return leaf
    e = indices(names, depth - 1)
    return st.one_of(leaf, st.builds(Binary, st.sampled_from(["+", "-", "*", "/", "%", "min", "max"]), e, e))


@cache
def typed(t: DType, names: tuple[str, ...]) -> st.SearchStrategy[Expr]:
    """An expression that shows its type: not a literal."""
    read = [
        st.tuples(*(indices(names, 1) for _ in b.shape)).map(lambda i, b=b: Load(b.name, i, b.dtype))
        for b in BUFFERS
        if b.dtype == t
    ]
    return st.one_of(*read, indices(names, 1).map(lambda e: Cast(_shown(e), t)))


def _shown(e: Expr) -> Expr:
    return Binary("+", M, e) if isinstance(e, Const | Binary) else e


@cache
def values(t: DType, names: tuple[str, ...], depth: int = 2) -> st.SearchStrategy[Expr]:
    leaf = st.one_of(_literal(t), typed(t, names))
    if depth == 0:
        return leaf
    e, c = values(t, names, depth - 1), conditions(names, depth - 1)
    more: list[st.SearchStrategy[Expr]] = [leaf, st.builds(Select, c, e, e)]
    if t == BOOL:
        more.append(c)
    else:
        more.append(st.builds(Binary, st.sampled_from(["+", "-", "*", "/", "%", "min", "max"]), e, e))
    if t.is_float:
        more += [st.builds(lambda x, y: Call("pow", (x, y)), e, e), st.builds(lambda x: Call("exp", (x,)), e)]
    return st.one_of(more)


@cache
def conditions(names: tuple[str, ...], depth: int = 2) -> st.SearchStrategy[Expr]:
    ops = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    compares = [st.builds(Compare, ops, typed(t, names), values(t, names, 0)) for t in (F32, I8, BOOL)] + [
        st.builds(Compare, ops, _literal(t), _literal(t)) for t in (F64, INDEX, U8)
    ]
    leaf = st.one_of(*compares, st.booleans().map(lambda v: Const(v, BOOL)))
    if depth == 0:
        return leaf
    c = conditions(names, depth - 1)
    return st.one_of(leaf, st.builds(Logic, st.sampled_from(["and", "or"]), c, c), st.builds(Not, c))


ANNOTATIONS = st.dictionaries(
    st.text(st.characters(codec="ascii", exclude_characters='"\\', exclude_categories=["Cc"]), max_size=5),
    st.one_of(st.integers(-9, 9), st.booleans(), st.floats(allow_nan=False), st.sampled_from(["", "x y"])),
    max_size=2,
).map(lambda d: tuple(sorted(d.items())))


@st.composite
def block(draw: st.DrawFn, loops: tuple[str, ...], number: int) -> Block:
    kinds = st.sampled_from([IterKind.SPATIAL, IterKind.REDUCE])
    iters = tuple(
        Iter(f"v{n}", draw(kinds), draw(indices((), 1)), draw(indices(loops))) for n in range(draw(st.integers(0, 2)))
    )
    spatial = tuple(i.name for i in iters if i.kind is IterKind.SPATIAL)

    def store(names: tuple[str, ...]) -> Store:
        b = draw(st.sampled_from(BUFFERS))
        return Store(b.name, tuple(draw(indices(names, 1)) for _ in b.shape), draw(values(b.dtype, names)))

    body = tuple(store(tuple(i.name for i in iters)) for _ in range(draw(st.integers(1, 2))))
    init = tuple(store(spatial) for _ in range(draw(st.integers(0, 2))))
    where = tuple(draw(st.lists(conditions(loops, 1).filter(lambda c: not loads(c)), max_size=2)))
    return Block(f"block_{number}", iters, body, init, where, draw(ANNOTATIONS))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    counter = iter(range(1000))

    def stmt(around: tuple[str, ...], depth: int) -> Stmt:
        n = next(counter)
        if depth == 0 or draw(st.booleans()):
            return draw(block(around, n))
        var = f"loop_{n}"
        body = tuple(stmt((*around, var), depth - 1) for _ in range(draw(st.integers(1, 2))))
        kind = draw(st.sampled_from([LoopKind.SERIAL, LoopKind.SERIAL, LoopKind.UNROLLED]))
        free = not around and all(
            it.kind is IterKind.SPATIAL for _, b in walk(body) if isinstance(b, Block) for it in b.iters
        )
        if free and draw(st.booleans()):
            return For(var, draw(indices((), 1)), body, LoopKind.BOUND, draw(ANNOTATIONS), Axis.BLOCK_X)
        return For(var, draw(indices((), 1)), body, kind, draw(ANNOTATIONS))

    body = tuple(stmt((), 3) for _ in range(draw(st.integers(0, 2))))
    return Program("p", BUFFERS[:3], BUFFERS[3:], body, (M,), draw(ANNOTATIONS))


@given(programs())
@settings(
    deadline=None, max_examples=examples(75), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_a_printed_program_parses_back(p: Program) -> None:
    verify(p)
    text = format_program(p)
    again = parsed(text)
    assert again == p
    assert format_program(again) == text


def one(store: str) -> str:
    """A program of one block that does `store`."""
    params = "A: f32[8], C: f32[8], N: i32[8]"
    return f"program p({params}) {{ for i in 8 {{ block b {{\nspatial vi in 8 = i\n{store}\n}} }} }}"


@pytest.mark.parametrize(
    ("store", "value"),
    [
        ("C[vi] = 1", Const(1.0, F32)),
        ("C[vi] = -1", Const(-1.0, F32)),
        ("C[vi] = A[vi] + 1", Binary("+", Load("A", (Var("vi"),), F32), Const(1.0, F32))),
        ("C[vi] = f32(2)", Const(2.0, F32)),
        ("C[vi] = f32(vi)", Cast(Var("vi"), F32)),
        ("C[vi] = f32(vi + 1)", Cast(Binary("+", Var("vi"), index(1)), F32)),
        ("N[vi] = i32(vi) / 2", Binary("/", Cast(Var("vi"), I32), Const(2, I32))),
        ("N[vi] = -N[vi]", Binary("-", Const(0, I32), Load("N", (Var("vi"),), I32))),
        ("C[vi] = -A[vi]", Binary("*", Const(-1.0, F32), Load("A", (Var("vi"),), F32))),
        ("C[vi] = min(0, A[vi])", Binary("min", Const(0.0, F32), Load("A", (Var("vi"),), F32))),
        (
            "C[vi] = 0 if 1 <= vi < 3 else inf",
            Select(
                Logic("and", Compare("<=", index(1), Var("vi")), Compare("<", Var("vi"), index(3))),
                Const(0.0, F32), Const(math.inf, F32),
            ),
        ),
        ("C[vi] = 1 if A[vi] > 0 else 0", Select(
            Compare(">", Load("A", (Var("vi"),), F32), Const(0.0, F32)), Const(1.0, F32), Const(0.0, F32))),
        ("C[vi] = pow(2, A[vi])", Call("pow", (Const(2.0, F32), Load("A", (Var("vi"),), F32)))),
        ("C[vi] = A[min(index(N[vi]), 7)]", Load(
            "A", (Binary("min", Cast(Load("N", (Var("vi"),), I32), INDEX), index(7)),), F32)),
    ],
)  # fmt: skip
def test_literals_take_the_type_they_meet(store: str, value: Expr) -> None:
    body = parsed(one(store)).body[0]
    assert isinstance(body, For)
    b = body.body[0]
    assert isinstance(b, Block)
    assert b.body[0].value == value


@pytest.mark.parametrize(
    ("store", "code", "says"),
    [
        ("C[vi] = vi", "E0204", "this is index"),
        ("C[vi] = N[vi]", "E0204", "`C` holds f32; this is i32"),
        ("C[vi] = A[vi] + N[vi]", "E0204", "f32 and i32"),
        ("N[vi] = 1.5", "E0205", "i32 does not hold 1.5"),
        ("N[vi] = 4294967296", "E0205", "does not hold"),
        ("C[vi] = true", "E0204", "this is bool"),
        ("C[i] = 0", "E0201", "`i` cannot be used here"),
        ("spatial vj in i + 1 = 0\n C[vj] = 0", "E0201", "`i` cannot be used here"),
        ("spatial vj in vi + 1 = 0\n C[vj] = 0", "E0201", "`vi` cannot be used here"),
        ("C[vj] = 0", "E0201", "there is no `vj`"),
        ("C[vi, 0] = 0", "E0203", "1 dimension; subscripts given: 2"),
        ("D[vi] = 0", "E0201", "there is no buffer `D`"),
        ("C[vi] = A", "E0201", "`A` is a buffer"),
        ("C[vi] = foo(1)", "E0206", "no function `foo`"),
        ("C[vi] = exp(1, 2)", "E0206", "takes 1 argument; given: 2"),
        ("C[vi] = xor(C[vi], A[vi])", "E0204", "`xor` takes integers; these are f32"),
        ("C[vi] = xor(C[vi] > 1, A[vi] > 1)", "E0204", "`xor` takes numbers; these are bool"),
        ("N[vi] = i32(exp(N[vi]))", "E0204", "takes floats"),
        ("C[vi] = 1 if vi else 2", "E0204", "a condition is needed"),
        ('C[vi] = "x"', "E0207", "cannot stand in a program"),
        ("C[vi] = 1 if 1.5 < 2.5 else 2", "E0205", "nothing here says which type"),
        ("where vi < 3\n C[vi] = 0", "E0201", "`vi` cannot be used here"),
        ("C[N[vi]] = 0", "E0204", "an index is needed here; this is i32"),
        ("C[vi] = A[index(A[vi])]", "E0204", "an index is made of an integer; this is f32"),
        ("C[vi] = A[index(vi < 3)]", "E0204", "an index is made of an integer; this is bool"),
        ("C[index(N[vi])] = 0", "E0212", "data read from `N` cannot decide this"),
        ("spatial vj in 8 = index(N[i])\n C[vj] = 0", "E0212", "data read from `N` cannot decide this"),
        ("spatial vj in index(N[0]) = i\n C[vj] = 0", "E0212", "data read from `N` cannot decide this"),
        ("where A[i] > 0\n C[vi] = 0", "E0212", "data read from `A` cannot decide this"),
        ("where i < 3 and not (i > 1 and N[i] > 0)\n C[vi] = 0", "E0212", "data read from `N` cannot decide this"),
        ("spatial vi in 8 = i\n C[vi] = 0", "E0202", "two iterators `vi`"),
        ("spatial i in 8 = i\n C[vi] = 0", "E0202", "name of a loop around it"),
        ("spatial vk in i = i\n C[vi] = 0", "E0201", "`i` cannot be used here"),
        ("reduce vk in 4 = i\n init { C[vk] = 0 }\n C[vi] = 0", "E0201", "`vk` cannot be used here"),
        ("where vi", "E0201", "cannot be used"),
    ],
)
def test_mistakes_have_a_place_and_a_reason(store: str, code: str, says: str) -> None:
    with pytest.raises(TschedError) as caught:
        parsed(one(store))
    first = caught.value.diagnostics[0]
    assert first.code == code
    assert says in first.message
    assert first.span is not None


@pytest.mark.parametrize("first", ["writes", "reads"])
def test_no_guard_reads_data_that_a_block_before_or_after_it_writes(first: str) -> None:
    """Dependences on what a guard reads are not looked for, so there must be none."""
    writes = "for i in 8 { block w { spatial vi in 8 = i; G[vi] = A[vi] } }"
    reads = "for j in 8 { block r { spatial vj in 8 = j; where %s; C[vj] = 1 } }"
    both = (writes, reads) if first == "writes" else (reads, writes)
    text = "program p(A: f32[8], C: f32[8]) { buffer G: f32[8]\n" + "\n".join(both) + " }"
    with pytest.raises(TschedError) as caught:
        parsed(text % "G[j] > 0")
    (only,) = caught.value.diagnostics
    assert (only.code, only.message) == ("E0212", "data read from `G` cannot decide this")
    p = parsed(text % "j > 0")
    nest = p.body[both.index(reads)]
    assert isinstance(nest, For)
    (b,) = nest.body
    assert isinstance(b, Block)
    read = Compare(">", Load("G", (Var("j"),), F32), Const(0.0, F32))
    guarded = replace(nest, body=(replace(b, where=(read,)),))
    with pytest.raises(ProgramError, match=r"block r, where: .* depends on data read from G"):
        verify(replace(p, body=tuple(guarded if s is nest else s for s in p.body)))


def test_every_mistake_is_reported_once() -> None:
    text = """program p(A: f23[8], C: f32[8]) {
        for i in n {
            block b {
                spatial vi in 8 = jj
                C[vi] = vi
            }
        }
        for i in 8 { block b { spatial vi in 8 = i; C[vi] = 0 } }
    }"""
    with pytest.raises(TschedError) as caught:
        parsed(text)
    assert [d.code for d in caught.value.diagnostics] == ["E0208", "E0201", "E0201", "E0204", "E0202"]


def test_loops_of_one_name_are_renamed() -> None:
    p = parsed("""program p(A: f32[8], i_1: f32[8]) {
        for i in 8 { block a { spatial vi in 8 = i; A[vi] = 0 } }
        for i in 8 { block b { spatial vi in 8 = i; i_1[vi] = 0 } }
    }""")
    assert [s.var for s in p.body if isinstance(s, For)] == ["i", "i_2"]
    assert {"i", "i_2"} <= used_names(p)
    assert parsed(format_program(p)) == p


def test_sizes_to_be_timed_at() -> None:
    text = """\
program p(A: f32[M]) where M in 1..64 at [1, 16, 64] {
    for i in M {
        block b {
            spatial vi in M = i
            A[vi] = 1.0
        }
    }
}
"""
    p = parsed(text)
    assert p.dims == (Dim("M", 1, 64, (1, 16, 64)),)
    assert format_program(p) == text
    with pytest.raises(TschedError, match="timed at sizes that it does not have"):
        parsed(text.replace("[1, 16, 64]", "[65]"))
    with pytest.raises(TschedError, match="no size to be timed at"):
        parsed(text.replace("[1, 16, 64]", "[M]"))


def test_open_dimensions_come_from_the_shapes_of_the_arguments() -> None:
    p = parsed("program p(A: f32[M, N * 2]) { for i in M { block b { spatial vi in M = i; A[vi, 0] = 1 } } }")
    assert p.dims == (Dim("M"), Dim("N"))
    assert parsed(format_program(p)) == p


def test_constant_inputs_are_written_and_read() -> None:
    p = parsed("program p(const: const f32, A: f32[4]) { block b { A[0] = const } }")
    assert [b.constant for b in p.params] == [True, False]
    assert parsed(format_program(p)) == p


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no program"),
        ("task a = b()", "a program is expected"),
        ("program p() {}\nprogram q() {}", "one program"),
        ("program p(A: f32[4]) { for i in 4, i in 4 { block b { A[0] = 1 } } }", "inside a loop of that name"),
        ("program p(A: f32[4]) { for A in 4 { block b { A[0] = 1 } } }", "name of a buffer"),
        ("program p(A: f32[4]) { parallel for i in 4, j in 4 { block b { A[0] = 1 } } }", "only plain loops"),
        ("program p(A: f32[4]) { for i in 4 {} }", "has no body"),
        ("program p(A: f32[4]) { block b {} }", "stores nothing"),
        ("program p(A: f32[4], A: f32[4]) {}", "two buffers"),
        ("program p(A: const f32[4]) { block b { A[0] = 1 } }", "A is constant, but not an input"),
        ("program p(A: f32[4]) { block b @(\"k\", [1]) { A[0] = 1 } }", "an annotation is"),
        ("program p(A: f32[4]) { parallel for i in 4 { block b { reduce v in 4 = i; A[0] = 1 } } }", "parallel loop"),
    ],
)  # fmt: skip
def test_wrong_programs_are_refused(text: str, says: str) -> None:
    with pytest.raises(TschedError) as caught:
        parsed(text)
    assert says in caught.value.diagnostics[0].message
