"""Elements selected by data, compiled: in every kind of loop, for numbers far out of bounds, and without active lanes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import check, compiled, program, run

NUMBERS = {
    "i8": (-128, 127), "u8": (0, 255), "i16": (-(2**15), 2**15 - 1), "u16": (0, 2**16 - 1),
    "i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1), "i64": (-(2**63), 2**63 - 1),
}  # fmt: skip

ZEROS = {"b": "false", "f": "0.0", "i": "0", "u": "0"}


@pytest.mark.corpus
@pytest.mark.parametrize("kind", ["", "vectorized ", "unrolled ", "parallel "])
@pytest.mark.parametrize("n", [3, 8, 21])
def test_take_with_clip(kind: str, n: int) -> None:
    rows = program(f"""
program f(W: f32[7, 5], I: i32[{n}], Y: f32[{n}, 5], Z: f32[5, {n}]) {{
    for i in {n} {{ {kind}for d in 5 {{ block Y {{ spatial v in {n} = i; spatial vd in 5 = d
        Y[v, vd] = W[min(max(index(I[v]), 0), 6), vd] }} }} }}
    for d_1 in 5 {{ {kind}for i_1 in {n} {{ block Z {{ spatial v in {n} = i_1; spatial vd in 5 = d_1
        Z[vd, v] = W[min(max(index(I[v]), 0), 6), vd] }} }} }}
}}
""")
    rng = np.random.default_rng(n)
    w, i = rng.standard_normal((7, 5)).astype(np.float32), rng.integers(-3, 10, n).astype(np.int32)
    got = run(rows, {"W": w, "I": i})
    want = np.take(w, i, axis=0, mode="clip")
    np.testing.assert_array_equal(got["Y"], want)
    np.testing.assert_array_equal(got["Z"], want.T)


@pytest.mark.corpus
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("kind", ["", "vectorized "])
def test_the_least_and_the_greatest_numbers_of_a_type(dtype: str, kind: str) -> None:
    p = program(f"""
program f(W: f32[9], I: {dtype}[12], Y: f32[12]) {{
    {kind}for i in 12 {{ block Y {{ spatial v in 12 = i
        Y[v] = W[min(max(index(I[v]), 2), 7) + 1] }} }}
}}
""")
    low, high = NUMBERS[dtype]
    numbers = [low, high, low, 0, 1, 2, 3, 6, 7, 8, 9, high]
    w = np.arange(9, dtype=np.float32)
    i = np.array(numbers, {"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    np.testing.assert_array_equal(
        run(p, {"W": w, "I": i})["Y"], np.clip(np.array(numbers, object), 2, 7).astype(int) + 1
    )


@pytest.mark.parametrize("step", [0, 1, 2])
def test_where_no_lane_is_alive_what_names_the_element_is_not_read(step: int) -> None:
    """`I` ends at memory that cannot be read, and only the first row has lanes that want to know."""
    p = program(f"""
program f(W: f32[6, 31], M: f32[9, 16], I: i32[4], Y: f32[9, 16]) {{
    for i in 9 {{ vectorized for j in 16 {{ block Y {{ spatial vi in 9 = i; spatial vj in 16 = j
        Y[vi, vj] = W[min(max(index(I[vi * 4]), 0), 5), vj * {step}] if M[vi, vj] > 1.0 else 2.0
    }} }} }}
}}
""")
    w = np.random.default_rng(0).standard_normal((6, 31)).astype(np.float32)
    m, want = np.full((9, 16), 0.5, np.float32), np.full((9, 16), 2, np.float32)
    m[0, :3] = 1.5
    want[0, :3] = w[3, np.arange(3) * step]
    i = np.array([3, 9, -1, 2], np.int32)
    np.testing.assert_array_equal(run(p, {"W": w, "M": m, "I": i})["Y"], want)


def test_a_gather_of_a_gather() -> None:
    p = program("""
program f(W: f32[5, 4], I: i32[6], J: u8[11], Y: f32[11, 4]) {
    for m in 11 { vectorized for d in 4 { block Y { spatial v in 11 = m; spatial vd in 4 = d
        Y[v, vd] = W[min(max(index(I[min(index(J[v]), 5)]), 0), 4), vd] * 2.0 } } }
}
""")
    rng = np.random.default_rng(1)
    numbers = {"I": rng.integers(-3, 9, 6).astype(np.int32), "J": rng.integers(0, 9, 11).astype(np.uint8)}
    check(p, {"W": rng.standard_normal((5, 4)).astype(np.float32), **numbers})


@pytest.mark.parametrize("dtype", ["u8", "i16", "f16", "bool", "f32", "f64"])
def test_lanes_that_are_masked_off_read_nothing(dtype: str) -> None:
    """`X` ends at memory that cannot be read, where the lanes lie that are masked off."""
    p = program(f"""
program f(X: {dtype}[37], I: i32[2, 21], Y: {dtype}[2, 21]) {{
    for i in 2 {{ vectorized for j in 21 {{ block Y {{ spatial vi in 2 = i; spatial vj in 21 = j
        Y[vi, vj] = X[vj * 9 - 9] if I[vi, vj] > 0 else {ZEROS[dtype[0]]}
    }} }} }}
}}
""")
    x = np.arange(1, 38).astype({"b": np.bool_, "u": np.uint8, "i": np.int16, "f": f"float{dtype[1:]}"}[dtype[0]])
    i = np.zeros((2, 21), np.int32)
    i[0, 1:6] = 1
    want = np.zeros((2, 21), x.dtype)
    want[0, 1:6] = x[::9]
    np.testing.assert_array_equal(run(p, {"X": x, "I": i})["Y"], want)
    if x.itemsize < 4:  # a branch around the load of each lane takes long to compile and to run
        assert "masked.gather" not in compiled(p).llvm_ir
