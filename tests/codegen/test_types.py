"""Element types, conversions and maths functions, in vectors and one at a time."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from tensorc_dsl.ir.arrays import narrow, stored_dtype, widen
from tensorc_dsl.ir.dtypes import DTYPES, DType
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.reference.maths import tf32
from tests.codegen.native import program, run

NUMBERS = [t for t in DTYPES.values() if t.kind != "bool" and t.has_arithmetic]


def elementwise(body: str, kind: str, types: dict[str, str], n: int = 37) -> str:
    params = ", ".join(f"{name}: {t}[{n}]" for name, t in types.items())
    return f"""
program f({params}) {{
    {kind} for i in {n} {{
        block C {{
            spatial v in {n} = i
            C[v] = {body}
        }}
    }}
}}
""".replace("serial for", "for")


def some(t: DType, seed: int, n: int = 37) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if t.is_float:
        return narrow(rng.uniform(-4.0, 4.0, n), t)
    low = 0 if t.kind == "uint" else -50
    return rng.integers(low, 100, n).astype(stored_dtype(t))


@pytest.mark.corpus
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize("t", NUMBERS, ids=str)
@pytest.mark.parametrize("op", ["A[v] + B[v]", "A[v] - B[v]", "A[v] * B[v]", "min(A[v], B[v])", "max(A[v], B[v])"])
def test_arithmetic(kind: str, t: DType, op: str) -> None:
    a, b = some(t, 1), some(t, 2)
    got = run(program(elementwise(op, kind, {"A": str(t), "B": str(t), "C": str(t)})), {"A": a, "B": b})["C"]
    x, y = widen(a, t), widen(b, t)
    want = {"+": x + y, "-": x - y, "*": x * y, "m": np.minimum(x, y), "a": np.maximum(x, y)}[
        op[1] if op[0] == "m" and op[1] == "a" else op[0] if op[0] == "m" else op[5]
    ]
    np.testing.assert_array_equal(widen(got, t), widen(narrow(want, t), t))


@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize("t", [t for t in NUMBERS if t.is_integer], ids=str)
def test_integer_division_floors_and_never_traps(kind: str, t: DType) -> None:
    a, b = some(t, 1), some(t, 2)
    b[:3] = 0
    if t.kind == "int":
        b[3:20:2] = -1
        a[3] = np.iinfo(stored_dtype(t)).min
    with np.errstate(all="ignore"):
        for op, want in (("/", a // b), ("%", a % b)):
            text = elementwise(f"A[v] {op} B[v]", kind, {"A": str(t), "B": str(t), "C": str(t)})
            np.testing.assert_array_equal(run(program(text), {"A": a, "B": b})["C"], want)


@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize("t", [t for t in NUMBERS if t.is_integer], ids=str)
def test_xor(kind: str, t: DType) -> None:
    a, b = some(t, 1), some(t, 2)
    p = program(elementwise("xor(A[v], B[v])", kind, {"A": str(t), "B": str(t), "C": str(t)}))
    np.testing.assert_array_equal(run(p, {"A": a, "B": b})["C"], a ^ b)
    np.testing.assert_array_equal(interpret(p, {"A": a, "B": b})["C"], a ^ b)
    np.testing.assert_array_equal(evaluate(p, {"A": a, "B": b})["C"], a ^ b)


@pytest.mark.corpus
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize("to", DTYPES.values(), ids=str)
@pytest.mark.parametrize("t", DTYPES.values(), ids=str)
def test_conversions(kind: str, t: DType, to: DType) -> None:
    a = np.arange(37) % 3 == 1 if t.kind == "bool" else some(t, 3)
    if to.kind == "uint" and t.kind != "uint" and t.kind != "bool":
        a = narrow(np.abs(widen(a, t)), t)
    got = run(program(elementwise(f"{to}(A[v])", kind, {"A": str(t), "C": str(to)})), {"A": a})["C"]
    wide = widen(a, t)
    want = wide != 0 if to.kind == "bool" else np.trunc(wide) if to.is_integer else wide.astype(np.float64)
    np.testing.assert_array_equal(widen(got, to), widen(narrow(want, to), to))


@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_comparisons_and_logic_on_stored_bools(kind: str) -> None:
    text = elementwise("A[v] < B[v] and not F[v] or A[v] == 1", kind, {"A": "u8", "B": "u8", "F": "bool", "C": "bool"})
    a, b = some(DTYPES["u8"], 1) % 3, some(DTYPES["u8"], 2) % 3
    a, b = a.astype(np.uint8), b.astype(np.uint8)
    flag = np.arange(37) % 2 == 0
    got = run(program(text.replace("== 1", "== u8(1)")), {"A": a, "B": b, "F": flag})["C"]
    np.testing.assert_array_equal(got, ((a < b) & ~flag) | (a == 1))


FUNCTIONS = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": special.erf, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": special.expit, "floor": np.floor, "ceil": np.ceil, "round": np.round, "abs": np.abs, "sin": np.sin,
    "cos": np.cos, "tf32": tf32,
}  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize("t", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(kind: str, t: str, name: str) -> None:
    dtype = DTYPES[t]
    x = some(dtype, 5)
    if name in ("log", "sqrt", "rsqrt"):
        x = narrow(np.abs(widen(x, dtype)) + 0.25, dtype)
    got = widen(run(program(elementwise(f"{name}(A[v])", kind, {"A": t, "C": t})), {"A": x})["C"], dtype)
    rtol = {"f16": 1e-3, "bf16": 8e-3, "f32": 5e-7, "f64": 1e-15}[t]
    np.testing.assert_allclose(got, FUNCTIONS[name](widen(x, dtype)), rtol=rtol, atol=rtol / 8)


def test_pow() -> None:
    x, y = np.abs(some(DTYPES["f32"], 1)), some(DTYPES["f32"], 2)
    got = run(
        program(elementwise("pow(A[v], B[v])", "vectorized", {"A": "f32", "B": "f32", "C": "f32"})), {"A": x, "B": y}
    )
    np.testing.assert_allclose(got["C"], np.power(x.astype(float), y), rtol=1e-6)
