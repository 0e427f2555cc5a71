"""Cutting loops keeps exactly the iterations whose guards hold, in their order."""

from __future__ import annotations

import operator
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import Binary, Compare, Const, Expr, Load, Logic, Not, Select, Var, add, index, mul
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Alloc, Flat, If, Loop, Parallel, format_body
from tensorc_dsl.lower.partition import partition
from tensorc_dsl.lower.trim_bounds import hoist_guards

OPS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "%": operator.mod,
    "min": min, "max": max, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def value(e: Expr, env: dict[str, int]) -> int:
    match e:
        case Const(value=v):
            return int(v)
        case Var(name=name):
            return env[name]
        case Binary(op=op, lhs=a, rhs=b) | Compare(op=op, lhs=a, rhs=b):
            return int(OPS[op](value(a, env), value(b, env)))
        case Logic(op=op, lhs=a, rhs=b):
            x, y = value(a, env), value(b, env)
            return x & y if op == "and" else x | y
        case Not(operand=a):
            return 1 - value(a, env)
        case Select(cond=c, then=a, other=b):
            return value(a if value(c, env) else b, env)
        case _:
            raise AssertionError(e)


def trail(body: tuple[Flat, ...], env: dict[str, int]) -> list[int]:
    """The subscripts of the stores that run, in order."""
    out: list[int] = []
    for s in body:
        match s:
            case Store():
                out.append(value(s.indices[0], env))
            case If():
                out += trail(s.body, env) if value(s.cond, env) else []
            case Loop():
                for k in range(value(s.begin, env), value(s.end, env)):
                    out += trail(s.body, {**env, s.var: k})
            case Parallel():
                (var,), (extent,) = s.vars, s.extents
                for k in range(value(extent, env)):
                    out += trail(s.body, {**env, var: k})
            case Alloc():
                out += trail(s.body, env)
    return out


small = st.integers(-4, 4)
comparisons = st.builds(
    lambda op, a, b, c: Compare(op, add(add(mul(Var("i"), index(a)), mul(Var("j"), index(b))), index(c)), index(0)),
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), small, small, st.integers(-12, 12),
)  # fmt: skip
divisions = st.builds(
    lambda op, a, d, c: Compare("<", Binary(op, add(mul(Var("i"), index(a)), Var("j")), index(d)), index(c)),
    st.sampled_from(["/", "%"]), small, st.integers(1, 5), small,
)  # fmt: skip
conditions = st.recursive(
    comparisons | divisions,
    lambda inner: st.builds(Logic, st.sampled_from(["and", "or"]), inner, inner) | st.builds(Not, inner),
    max_leaves=3,
)


@given(
    st.lists(conditions, max_size=3),
    st.integers(1, 7),
    st.integers(1, 7),
    st.sampled_from(list(LoopKind)),
    st.booleans(),
)
def test_the_same_iterations_run(conds: list[Expr], m: int, n: int, kind: LoopKind, split_body: bool) -> None:
    store = Store("C", (add(mul(Var("i"), index(100)), Var("j")),), Load("A", (Const(0, INDEX),), INDEX))
    body: tuple[Flat, ...] = (store,)
    for c in conds:
        body = (If(c, body), store) if split_body else (If(c, body),)
    inner = Loop("j", index(0), index(n), kind, body)
    nest: Flat = (
        Parallel(("i",), (index(m),), (inner,))
        if kind is LoopKind.PARALLEL
        else Loop("i", index(0), index(m), LoopKind.SERIAL, (inner,))
    )
    want = trail((nest,), {})
    assert trail(hoist_guards((nest,)), {}) == want
    assert trail(partition((nest,)), {}) == want
    assert trail(partition(hoist_guards((nest,))), {}) == want


borders = st.builds(
    lambda op, a, b, c, d: Binary(op, add(add(mul(Var("i"), index(a)), mul(Var("j"), index(b))), index(c)), index(d)),
    st.sampled_from(["min", "max"]), small, small, st.integers(-40, 40), st.integers(-40, 40),
) | st.builds(
    lambda a, b, c, d: Binary("%", add(add(mul(Var("i"), index(a)), mul(Var("j"), index(b))), index(c)), index(d)),
    small, small, st.integers(-40, 40), st.integers(1, 90),
)  # fmt: skip


outer_kinds = st.sampled_from([LoopKind.SERIAL, LoopKind.UNROLLED])


@given(borders, borders, conditions, st.integers(1, 70), st.integers(1, 70), outer_kinds)
def test_vectors_are_cut_at_borders_and_store_the_same(x: Expr, y: Expr, c: Expr, m: int, n: int, k: LoopKind) -> None:
    clamped = Binary("min", Binary("max", x, index(-7)), y)
    place = add(mul(Var("i"), index(1000)), Var("j"))
    value_ = Select(c, clamped, Binary("max", y, Var("j")))
    nest = Loop(
        "i", index(0), index(m), k,
        (Loop("j", index(0), index(n), LoopKind.VECTORIZED, (Store("C", (add(mul(place, index(1000)), value_),), x),)),),
    )  # fmt: skip
    assert trail(partition((nest,)), {}) == trail((nest,), {})


def flat(text: str) -> str:
    return format_body(lower_cpu(parse_program(Source("test.tsched", text))).body)


def row(kind: str, index_: str, n: int = 100) -> str:
    return flat(f"""
program f(X: f32[3, {n}], Y: f32[3, {n}]) {{
    for y in 3 {{ {kind}for x in {n} {{ block Y {{
        spatial vy in 3 = y
        spatial vx in {n} = x
        Y[vy, vx] = {index_}
    }} }} }}
}}
""")


@pytest.mark.parametrize(
    "element",
    [
        "X[min(max(vy - 1, 0), 2), min(max(vx - 1, 0), 99)] + X[vy, min(max(vx + 2, 0), 99)]",
        "X[vy, max(vx - 1, 0)] + X[vy, min(vx + 2, 99)]",
        "(X[vy, vx - 1] if vx >= 1 else 0.0) + (X[vy, vx + 2] if vx < 98 else 0.0)",
        "X[vy, (vx + 99) % 100] + X[vy, (vx + 2) % 100]",
        "X[vy, vx - 1 if vx >= 1 else 1 - vx] + X[vy, vx + 2 if vx + 2 <= 99 else 196 - vx]",
    ],
)
def test_between_the_borders_of_a_row_nothing_is_asked(element: str) -> None:
    """Every vector of an image that is continued at its border was gathered, element by element."""
    found = row("vectorized ", element)
    assert [x.split("{")[0].strip() for x in found.splitlines() if "vectorized" in x] == [
        "vectorized for x in 0 .. 16",
        "vectorized for x in 16 .. 96",
        "vectorized for x in 96 .. 100",
    ]
    (line,) = (x for x in found.split("16 .. 96 {")[1].splitlines()[1:2])
    assert re.findall(r"X\[([^\]]*x[^\]]*)\]", line) == re.findall(r"X\[([^\]]*\bx [-+] \d+)\]", line)
    assert not re.search(r"\bif\b|%", line)
    assert line.count("X[") == 2


STEPS = """
program f(X: f32[20, 100], Y: f32[20, 100]) {
    buffer S: f32[2, 20, 100]
    for far in 4, tile in 7, near in 4, i in 6 { vectorized for j in 100 { block S {
        where far * 4 + near < 15 and tile * 6 + i - near >= 0 and tile * 6 + i - near < 20
        scan vt in 15 = far * 4 + near
        spatial vi in 20 = tile * 6 + i - near
        spatial vj in 100 = j
        S[vt % 2, vi, vj] = X[vi, vj] if vt < 1 else S[(vt + 1) % 2, vi, vj - 1] + S[(vt + 1) % 2, vi, vj + 1]
            if vi >= 1 and (vj >= 1 and vj < 99) else S[(vt + 1) % 2, vi, vj]
    } } }
    for i_1 in 20, j_1 in 100 { block Y {
        spatial vi in 20 = i_1
        spatial vj in 100 = j_1
        Y[vi, vj] = S[0, vi, vj]
    } }
}
"""


def test_between_its_borders_a_step_of_a_scan_asks_nothing_of_its_row() -> None:
    """It reads the buffer that it stores to, as sums in registers do; and its rows are in tiles whose guards are cut."""
    found = flat(STEPS.replace("\n            if", " if"))
    rows = re.findall(r"vectorized for j in (\d+) \.\. (\d+) \{\n *(.*)", found)
    assert len(rows) > 12
    assert {(begin, end) for begin, end, _ in rows} == {("0", "16"), ("16", "96"), ("96", "100")}
    assert not [line for begin, _, line in rows if begin == "16" and re.search(r"\bj (>=|<)", line)]


def test_the_borders_of_an_image_of_twice_the_size() -> None:
    found = row("vectorized ", "X[vy, min(max(vx / 2 + vx % 2 * 2 - 1, 0), 49)]")
    assert "x in 16 .. 80 {\n        Y[y * 100 + x] = X[y * 100 + x % 2 * 2 + x / 2 - 1]" in found


@pytest.mark.parametrize(("kind", "element"), [("", "X[vy, max(vx - 1, 0)]"), ("vectorized ", "X[max(vy - 1, 0), vx]")])
def test_borders_that_no_vector_crosses_are_no_cuts(kind: str, element: str) -> None:
    assert " x in 0 .. 100" in row(kind, element)
    assert row(kind, element).count("Y[") == 1


def test_rows_that_are_written_out_are_cut_where_the_first_and_the_last_ones_are_beyond_the_image() -> None:
    """LLVM did not see that two rows read the same one in between: it asked for each whether it is inside."""
    found = flat("""
program f(X: f32[24, 64], Y: f32[24, 64]) {
    for far in 3 { unrolled for y in 8 { vectorized for x in 64 { block Y {
        spatial vy in 24 = far * 8 + y
        spatial vx in 64 = x
        Y[vy, vx] = X[max(vy - 3, 0), vx] + X[max(vy - 2, 0), vx] + X[max(vy - 1, 0), vx] + X[min(vy + 1, 23), vx]
    } } } }
}
""")
    rows = [line for line in found.splitlines() if "Y[" in line]
    assert [len(re.findall("max|min", line)) for line in rows] == [3, 2, 1, 0, 0, 0, 1]


def test_a_sum_that_is_kept_in_registers_is_whole() -> None:
    assert row("vectorized ", "Y[vy, vx] + X[vy, max(vx - 1, 0)]").count("Y[") == 2


def test_what_changes_everywhere_is_no_border() -> None:
    assert row("vectorized ", "X[vy, vx] if vx % 2 == 0 else X[vy, vx % 7]").count("Y[") == 1


@pytest.mark.parametrize(("rounds", "copies"), [(63, 2), (64, 1)])
def test_a_guard_around_a_long_loop_makes_no_copy_of_it(rounds: int, copies: int) -> None:
    store = Store("C", (add(mul(Var("i"), index(100)), Var("k")),), index(0))
    guarded = If(Compare(">=", add(Var("h"), Var("i")), index(3)), (_serial("k", rounds, store),))
    body = (_serial("h", 3, _serial("i", 5, guarded)),)
    found = partition(body)
    assert trail(found, {}) == trail(body, {})
    assert (format_body(found).count("for k") > 1) == (copies > 1)


def _serial(var: str, extent: int, *body: Flat) -> Loop:
    return Loop(var, index(0), index(extent), LoopKind.SERIAL, body)
