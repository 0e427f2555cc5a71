"""Lanes near each other at distances that are no numbers: picked from vectors, for all types, never read past the end."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.codegen.compile import compile_kernel
from tensorc_dsl.backend.llvm.codegen.lane_loads import growth
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.ir.expr import Binary, Var, add, index, mul, sub
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tests.codegen.native import program, run

WIDE = Target(cpu="znver4", features="+avx512f,+avx512bw,+avx512vl", vector_bits=512, cores=1)
I = Var("i")

GROWING = (
    "(i * 1917 + 7) / 1437", "(i * 613 + 5) / 1001", "(i * 2917 + 1008) / 1009", "(i * 1000 + 999) / 999 + i / 701 * 2",
    "((i * 2003) / 1009 * 5 + 3) / 7", "i * 3 - (i * 1001 + 500) / 1000", "(i * 903 - 701 * 9) / 701 + 9",
)  # fmt: skip
OTHERS = ("(i * 5003) / 1009", "(9001 - i * 700) / 1009 + 140", "i * 1009 % 1013", "i * 2 - (i * 5003) / 1009 + 999")
"""Too far apart, falling, or neither growing nor falling."""
TYPES = {
    "f32": np.float32, "f64": np.float64, "u8": np.uint8, "i16": np.int16, "f16": np.float16, "bool": np.bool_,
}  # fmt: skip


def places(subscript: str, n: int) -> list[int]:
    return [int(eval(subscript.replace("/", "//"), {"i": i})) for i in range(3, n + 3)]


def resized(t: str, n: int, subscripts: tuple[str, ...]) -> Program:
    """For each subscript a row of `n` lanes, the last of which reads the last element of an array if subscripts grow. Rows
    begin at 3, so that lane 0 of a vector is nothing that divides.
    """
    inputs = ", ".join(f"X{k}: {t}[{max(places(s, n)) + 1}]" for k, s in enumerate(subscripts))
    outputs = ", ".join(f"Y{k}: {t}[{n}]" for k in range(len(subscripts)))
    blocks = "\n".join(
        f"vectorized for x{k} in {n} {{ block Y{k} {{ spatial v in {n} = x{k}\n"
        f"Y{k}[v] = X{k}[{s.replace('i', '(v + 3)')}] }} }}"
        for k, s in enumerate(subscripts)
    )
    return program(f"program resized({inputs}, {outputs}) {{\n{blocks}\n}}")


@pytest.mark.corpus
@pytest.mark.parametrize(("t", "n"), [*(("f32", n) for n in (1, 16, 37, 200)), *((t, 77) for t in TYPES if t != "f32")])
def test_each_lane_has_its_own_element(t: str, n: int) -> None:
    subscripts = (*GROWING, *OTHERS)
    rng = np.random.default_rng(n)
    given = {
        f"X{k}": rng.integers(0, 2 if t == "bool" else 99, max(places(s, n)) + 1).astype(TYPES[t])
        for k, s in enumerate(subscripts)
    }
    found = run(resized(t, n, subscripts), given)
    for k, s in enumerate(subscripts):
        np.testing.assert_array_equal(found[f"Y{k}"], given[f"X{k}"][places(s, n)], err_msg=s)


@pytest.mark.parametrize("n", [16, 37, 200])
def test_quotients_and_remainders_as_values(n: int) -> None:
    p = program(f"""
program counted(Q: i64[{n}], R: f32[{n}]) {{
    vectorized for x in {n} {{ block Q {{ spatial i in {n} = x
        Q[i] = i64((i * 1917 - 90001) / 1437) }} }}
    vectorized for x_1 in {n} {{ block R {{ spatial i in {n} = x_1
        R[i] = f32((i / 3 * 1917 - 90001) % 1437) }} }}
}}
""")
    found, i = run(p, {}), np.arange(n)
    np.testing.assert_array_equal(found["Q"], (i * 1917 - 90001) // 1437)
    np.testing.assert_array_equal(found["R"], (i // 3 * 1917 - 90001) % 1437)


@pytest.mark.parametrize("subscript", GROWING)
def test_no_lane_is_gathered(subscript: str) -> None:
    """A machine takes a load for each lane of a gather. Quotients of 64 bits are taken apart, lane by lane."""
    text = compile_kernel(lower_cpu(resized("f32", 64, (subscript,))), WIDE, 1).llvm_ir
    assert "vpermi2var.d.512" in text
    assert "gather" not in text
    assert "div <16 x i64>" not in text


@pytest.mark.parametrize("subscript", OTHERS)
def test_lanes_that_may_be_far_apart_are_gathered(subscript: str) -> None:
    text = compile_kernel(lower_cpu(resized("f32", 64, (subscript,))), WIDE, 1).llvm_ir
    assert "gather" in text
    assert "vpermi2var" not in text


@pytest.mark.parametrize("steps", [1, 2, 7, 15])
def test_growth_is_between_its_ends(steps: int) -> None:
    rng = np.random.default_rng(steps)
    for _ in range(50):
        a, b, c, m, n = (int(x) for x in rng.integers(1, 40, 5))
        inner = Binary("/", add(mul(I, index(a)), index(b)), index(m))
        e = sub(Binary("/", add(mul(inner, index(c)), I), index(n)), mul(inner, index(int(rng.integers(0, 3)))))
        ends = growth(e, "i", steps)
        assert ends is not None
        values = [int(eval(format_expr(e).replace("/", "//"), {"i": i})) for i in range(200)]
        changes = [y - x for x, y in zip(values, values[steps:], strict=False)]
        assert ends[0] <= min(changes), format_expr(e)
        assert max(changes) <= ends[1], format_expr(e)
