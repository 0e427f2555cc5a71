"""Every operator, conversion and function on the edge values of every type: all implementations agree."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.arrays import Array, narrow, stored_dtype, wide_dtype, widen
from tensorc_dsl.ir.dtypes import BOOL, DTYPES, DType, largest_finite, limits, smallest_normal, unit_roundoff
from tensorc_dsl.ir.expr import ZERO, Binary, Cast, Const, Expr, Load, Select, index
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.parse_expr import VisibleNames
from tensorc_dsl.ir.print import format_expr, format_program
from tensorc_dsl.ir.program import Block, Buffer, Program, Store
from tensorc_dsl.proof.sets.simplify import simplify
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse
from tests.codegen.native import program, run
from tests.compute.texts import build

ARITHMETIC = ("{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / {b}", "{a} % {b}", "min({a}, {b})", "max({a}, {b})")
COMPARISONS = tuple(f"{{a}} {op} {{b}}" for op in ("<", "<=", ">", ">=", "==", "!="))
LOGIC = ("{a} and {b}", "{a} or {b}", "not {a}", "{a} == {b}", "{a} != {b}", "{a} if {b} else not {a}")
EXACT = frozenset(("sqrt", "floor", "ceil", "trunc", "round", "abs", "sign", "copysign", "isnan", "isinf", "isfinite"))
KINDS = ("for", "vectorized for")
ARITHMETIC_TYPES = [t for t in DTYPES.values() if t.has_arithmetic]


def edges(t: DType) -> Array:
    """Values of `t`, wide: its extremes and what is near to them, and where operations of it change their ways."""
    if t == BOOL:
        return np.array([False, True])
    if t.is_integer:
        low, high = limits(t)
        some = {low, low + 1, high, high - 1, low // 2, high // 2, 0, 1, 2, 3, 5, 7, 100, -1, -2, -3, -7, -100}
        return np.array(sorted(n for n in some if low <= n <= high), wide_dtype(t))
    top, small, eps = largest_finite(t), smallest_normal(t), unit_roundoff(t)
    some = [
        0.0,
        0.1,
        0.5,
        1.0,
        1.0 + 2 * eps,
        1.5,
        2.0,
        2.5,
        3.0,
        7.25,
        100.0,
        127.5,
        128.0,
        1000.0,
        65504.0,
        1e8,
        2.0**31,
    ]
    some += [2.0**63, top, top / 2, small, small * eps * 2, small * 1.5, np.inf]
    numbers = widen(narrow(np.array([*some, *(-x for x in some), np.nan]), t), t)
    return np.unique(numbers.view(np.int64)).view(np.float64)  # by their bits: both zeros


def text(bodies: Iterable[tuple[str, str]], params: str, n: int, kind: str) -> str:
    """A program that stores each of the bodies, with its type, in an output of its own."""
    bodies = tuple(bodies)
    outputs = ", ".join(f"C{k}: {t}[{n}]" for k, (_, t) in enumerate(bodies))
    nests = "".join(
        f"    {kind} i{k} in {n} {{ block C{k} {{ spatial v in {n} = i{k}; C{k}[v] = {body} }} }}\n"
        for k, (body, _) in enumerate(bodies)
    )
    return f"program f({params}, {outputs}) {{\n{nests}}}\n"


def require_same(what: str, got: Array, want: Array, t: DType, ulps: float = 0.0, zeros: bool = True) -> None:
    """Wide values of type `t` that are equal, NaN where there is NaN; floats up to so many units in the last place."""
    if not t.is_float:
        np.testing.assert_array_equal(got, want, what)
        return
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(all="ignore"):
        near = np.abs(got - want) <= ulps * 2 * unit_roundoff(t) * np.maximum(np.abs(want), smallest_normal(t))
    wrong = ~(same | near)
    if zeros:
        wrong |= (got == 0) & (want == 0) & (np.signbit(got) != np.signbit(want))
    assert not wrong.any(), f"{what}: {got[wrong]} is not {want[wrong]} at {np.flatnonzero(wrong)}"


def require_agreement(
    bodies: list[tuple[str, str]], params: str, inputs: dict[str, Array], kind: str, ulps: float = 0.0
) -> None:
    """Reference, interpreter and kernel give the same for each body."""
    n = len(next(iter(inputs.values())))
    p = program(text(bodies, params, n, kind))
    # The reference and the interpreter are of loops that run in order.
    plain = program(text(bodies, params, n, "for"))
    expected, stepped, native = evaluate(plain, inputs), interpret(p, inputs), run(p, inputs)
    for k, (body, name) in enumerate(bodies):
        t, of = DTYPES[name], f"C{k}"
        want = widen(narrow(expected[of], t), t)
        zeros = not body.startswith(("min", "max"))  # which zero is less is not said
        exact = ulps == 0 or body.split("(")[0] in EXACT
        require_same(f"interpreter, {body}", widen(narrow(stepped[of], t), t), want, t, 0.5, zeros)
        require_same(f"kernel, {body}", widen(native[of], t), want, t, 0.0 if exact else ulps, zeros)


def pairs(t: DType) -> dict[str, Array]:
    x = edges(t)
    a, b = (narrow(m.reshape(-1), t) for m in np.meshgrid(x, x, indexing="ij"))
    return {"A": a, "B": b}


@pytest.mark.corpus
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("t", ARITHMETIC_TYPES, ids=str)
def test_operators(t: DType, kind: str) -> None:
    operators = [(op, str(t)) for op in ARITHMETIC] + [(op, "bool") for op in COMPARISONS]
    if t == BOOL:
        operators = [(op, "bool") for op in LOGIC]
    elif t.is_integer:
        operators += [("xor({a}, {b})", str(t)), ("abs({a})", str(t)), ("-{a}", str(t))]
    else:
        operators += [("-{a}", str(t))]
    bodies = [(op.format(a="A[v]", b="B[v]"), out) for op, out in operators]
    inputs = pairs(t)
    n = len(inputs["A"])
    require_agreement(bodies, f"A: {t}[{n}], B: {t}[{n}]", inputs, kind)


@pytest.mark.corpus
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("t", DTYPES.values(), ids=str)
def test_conversions(t: DType, kind: str) -> None:
    x = edges(t)
    if t.is_float:  # just below, at and above what is half way between two numbers of each narrower type
        halves = np.array(
            [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 65520.0, 1 + 2.0**-24, 2.0**-25]
        )
        near = np.concatenate([np.nextafter(halves, 0), halves, np.nextafter(halves, np.inf), halves + 2.0**-40])
        near = np.concatenate([near, [254.5, 255.5, 256.0, -128.5, -129.0, 32767.5, -0.9, 2.0**32, 4294967295.5]])
        x = np.concatenate([x, widen(narrow(np.concatenate([near, -near]), t), t)])
    elif t.bits > 32:
        large = np.array(
            [2**62 + 2**54 + 1, 2**62 + 2**54, 2**53 + 1, 2**60 + 2**36 + 1, 2**24 + 1, 2**62 + 3 * 2**54 - 1], x.dtype
        )
        x = np.concatenate([x, large, -large])
    inputs = {"A": narrow(x, t)}
    bodies = [(f"{to}(A[v])", str(to)) for to in DTYPES.values()]
    require_agreement(bodies, f"A: {t}[{len(x)}]", inputs, kind)


@pytest.mark.corpus
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("t", [t for t in ARITHMETIC_TYPES if t != BOOL], ids=str)
def test_functions(t: DType, kind: str) -> None:
    inputs = pairs(t)
    n = len(inputs["A"])
    bodies = [
        (f"{f}({', '.join(['A[v]', 'B[v]'][: m.count])})", "bool" if m.tells else str(t))
        for f, m in MATHS.items()
        if m.accepts(t)
    ]
    ulps = 0.0 if t.is_integer else 2.0 if t.bits < 64 else 4.0
    require_agreement(bodies, f"A: {t}[{n}], B: {t}[{n}]", inputs, kind, ulps=ulps)


@pytest.mark.corpus
@pytest.mark.parametrize("t", [t for t in ARITHMETIC_TYPES if t != BOOL], ids=str)
def test_operators_on_constants(t: DType) -> None:
    # What a compiler works out ahead is what a run would give; each pair of numbers stands in the text.
    x = edges(t)
    picked = x[:: max(1, len(x) // 7)].tolist() + x[-1:].tolist()
    ops = ("+", "-", "*", "/", "%", "min", "max")
    found: list[Expr] = [Binary(op, Const(a, t), Const(b, t)) for a in picked for b in picked for op in ops]
    found += [Cast(Cast(Const(a, t), t), to) for a in picked for to in DTYPES.values() if to not in (t, BOOL)]
    for to in DTYPES.values():
        mine = [e for e in found if (e.dtype if isinstance(e, Cast) else t) == to]
        if not mine:
            continue
        lines = "".join(f"    block c{k} {{ C[{k}] = {format_expr(e)} }}\n" for k, e in enumerate(mine))
        p = program(f"program f(C: {to}[{len(mine)}]) {{\n{lines}}}\n")
        want, got = widen(narrow(interpret(p, {})["C"], to), to), widen(run(p, {})["C"], to)
        least = np.array([isinstance(e, Binary) and e.op in ("min", "max") for e in mine])
        require_same("constants", got[~least], want[~least], to)
        require_same("constants", got[least], want[least], to, zeros=False)


@pytest.mark.corpus
@pytest.mark.parametrize("t", DTYPES.values(), ids=str)
def test_every_value_is_printed_as_itself(t: DType) -> None:
    if t.bits == 1 or t.bits > 16:
        values = edges(t).tolist()
    else:
        with np.errstate(invalid="ignore"):  # NaNs that signal
            values = widen(np.arange(2**t.bits).astype(f"uint{t.bits}").view(stored_dtype(t)), t).tolist()
    (task,) = parse(Source("t", f"task t = t(x=[{', '.join(format_expr(Const(x, t)) for x in values)}])")).items
    assert isinstance(task, tree.TaskDef)
    listed = task.bindings[0][1]
    assert isinstance(listed, tree.ListExpr)
    here = VisibleNames({}, {}, {}, {})
    assert [here.stored(e, Buffer("C", t, ())) for e in listed.items] == [Const(x, t) for x in values]


@pytest.mark.corpus
@pytest.mark.parametrize("t", DTYPES.values(), ids=str)
def test_programs_of_every_edge_are_read_as_they_are_printed(t: DType) -> None:
    shape, block = (index(1),), partial(Block, iters=())
    values = [Const(x, t) for x in edges(t).tolist()]
    body = tuple(block(f"c{k}", body=(Store("C", (ZERO,), x),), init=()) for k, x in enumerate(values))
    p = Program("f", (Buffer("C", t, shape),), (), body)
    assert parse_program(Source("p.tsched", format_program(p))) == p


def test_constants_that_compute_differently_are_different() -> None:
    zero, minus, nan = Const(0.0, DTYPES["f32"]), Const(-0.0, DTYPES["f32"]), Const(float("nan"), DTYPES["f32"])
    assert zero != minus
    assert nan == Const(float("nan"), DTYPES["f32"])
    assert len({zero, minus, nan, Const(-float("nan"), DTYPES["f32"])}) == 3
    chosen = Select(Load("B", (), BOOL), zero, minus)
    assert simplify(chosen, {}) == chosen


REDUCTIONS = {
    "sum": "+",
    "prod": "*",
    "min": "min",
    "max": "max",
    "any": "or",
    "all": "and",
    "argmin": "",
    "argmax": "",
}


@pytest.mark.parametrize("t", ARITHMETIC_TYPES, ids=str)
def test_reductions_of_the_edges(t: DType) -> None:
    x = narrow(edges(t), t)
    n = len(x)
    for name in REDUCTIONS:
        if (name in ("any", "all")) != (t == BOOL):
            continue
        out = "i64" if name.startswith("arg") else t
        p = build(f"compute f(A: {t}[M, N]) -> C: {out}[M] {{ C[i] = {name}[j] A[i, j] }}", M=n, N=1)
        assert parse_program(Source("p.tsched", format_program(p))) == p
        want, stepped = evaluate(p, {"A": x[:, None]})["C"], interpret(p, {"A": x[:, None]})["C"]
        got = run(p, {"A": x[:, None]})["C"]
        of = DTYPES[str(out)]
        require_same(name, widen(got, of), widen(narrow(want, of), of), of, zeros=False)
        require_same(name, widen(got, of), widen(narrow(stepped, of), of), of, zeros=False)
        if not name.startswith("arg"):  # one term is the whole: the identity changes nothing
            require_same(name, widen(got, t), edges(t), t, zeros=False)


@pytest.mark.parametrize("t", ARITHMETIC_TYPES, ids=str)
def test_the_minus_of_a_constant_wraps(t: DType) -> None:
    if t == BOOL:
        return
    least = limits(t)[0] if t.is_integer else -largest_finite(t)
    most = limits(t)[1] if t.is_integer else largest_finite(t)
    for x in (least, most):
        p = build(f"compute f() -> C: {t}[M] {{ C[i] = -{t}({format_expr(Const(x, t))}) }}", M=1)
        require_same("-", widen(run(p, {})["C"], t), widen(narrow(evaluate(p, {})["C"], t), t), t)
        assert parse_program(Source("p.tsched", format_program(p))) == p


def test_the_sign_of_a_remainder_is_the_divisors() -> None:
    for t in (t for t in ARITHMETIC_TYPES if t.is_float):
        p = program(text([("A[v] % B[v]", str(t))], f"A: {t}[4], B: {t}[4]", 4, "for"))
        a, b = np.array([7.0, -7.0, 7.0, -7.0]), np.array([3.0, 3.0, -3.0, -3.0])
        assert widen(run(p, {"A": narrow(a, t), "B": narrow(b, t)})["C0"], t).tolist() == [1.0, 2.0, -2.0, -1.0]
    p = program(text([("A[v] % B[v]", "f32")], "A: f32[1], B: f32[1]", 1, "for"))
    assert run(p, {"A": np.array([1e8], np.float32), "B": np.array([3], np.float32)})["C0"].tolist() == [1.0]
