"""`saturate(type, x)` is the nearest number that the type has, of every number of every type."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.codegen.compile import compile_kernel
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.ir.arrays import narrow, stored_dtype, wide_dtype, widen
from tensorc_dsl.ir.dtypes import DTYPES, limits
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tests.codegen.native import program, run
from tests.codegen.test_machine_code import NARROW, WIDE
from tests.compute.native import everywhere
from tests.compute.scalars import FLOATS, WIDTHS
from tests.compute.texts import build, checked, errors, made, parsed

ALL = "compute f(X: {t}[N]) -> " + ", ".join(f"to_{w}: {w}[N]" for w in WIDTHS) + " {{\n"
ALL += "\n".join(f"    to_{w}[i] = saturate({w}, X[i])" for w in WIDTHS) + "\n}}\n"


def in_vectors(p: Program) -> Program:
    """The program with all of its loops vectorized."""
    return program(re.sub(r"^    for ", "    vectorized for ", format_program(p), flags=re.MULTILINE))


def nearest(x: np.ndarray, to: str) -> np.ndarray:
    low, high = limits(DTYPES[to])
    return np.array([0 if v != v else int(min(max(v, low), high)) for v in x.tolist()], wide_dtype(DTYPES[to]))


def some(t: str) -> np.ndarray:
    """Numbers of a type around the ends of all integer types."""
    if t in FLOATS:
        ends = [float(v + d) for w in WIDTHS for v in limits(DTYPES[w]) for d in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)]
        with np.errstate(over="ignore"):
            return narrow(np.array([*ends, -0.5, 0.5, -0.0, np.nan, np.inf, -np.inf]), DTYPES[t])
    low, high = limits(DTYPES[t])
    if WIDTHS[t] == 8:
        return np.arange(low, high + 1).astype(stored_dtype(DTYPES[t]))
    near = {v + d for w in WIDTHS for v in limits(DTYPES[w]) for d in (-1, 0, 1)}
    return np.array(sorted(v for v in near if low <= v <= high), stored_dtype(DTYPES[t]))


@pytest.mark.corpus
@pytest.mark.parametrize("t", [*FLOATS, *WIDTHS])
def test_every_type_saturates_to_every_integer(t: str) -> None:
    x = some(t)
    p = build(ALL.format(t=t), N=len(x))
    for q in (p, in_vectors(p)):
        got = everywhere(q, {"X": x})
        for w in WIDTHS:
            np.testing.assert_array_equal(got[f"to_{w}"], nearest(widen(x, DTYPES[t]), w), err_msg=w)


@pytest.mark.parametrize("t", ["i16", "u16", "f16"])
def test_all_numbers_of_16_bits(t: str) -> None:
    x = np.arange(2**16, dtype=np.uint16).view(stored_dtype(DTYPES[t]))
    got = run(in_vectors(build(ALL.format(t=t), N=len(x))), {"X": x})
    for w in ("i8", "u8", "i16", "u16"):
        np.testing.assert_array_equal(got[f"to_{w}"], nearest(widen(x, DTYPES[t]), w), err_msg=w)


PAIRS = """
compute f(A: u8[N], B: u8[N]) -> Add: u8[N], Sub: u8[N], Mean: u8[N], Low: u8[N], Dif: u8[N], Dist: u8[N], S: i8[N] {
    Add[i] = saturate(u8, u16(A[i]) + u16(B[i]))
    Sub[i] = saturate(u8, i16(A[i]) - i16(B[i]))
    Mean[i] = u8((u16(A[i]) + u16(B[i]) + 1) / 2)
    Low[i] = u8((u16(A[i]) + u16(B[i])) / 2)
    Dif[i] = max(A[i], B[i]) - min(A[i], B[i])
    Dist[i] = u8(abs(i16(A[i]) - i16(B[i])))
    S[i] = saturate(i8, i16(A[i]) - i16(B[i]))
}
compute g(A: i8[N], B: i8[N]) -> Add: i8[N], Sub: i8[N], Wrap: i8[N], Most: i8[N], U: u8[N], Part: i8[N], Const: i8[N] {
    Add[i] = saturate(i8, i16(A[i]) + i16(B[i]))
    Sub[i] = saturate(i8, i32(A[i]) - i32(B[i]))
    Wrap[i] = i8(i16(A[i]) + i16(B[i]))
    Most[i] = i8(min(i16(A[i]) + i16(B[i]), 127))
    U[i] = saturate(u8, i16(A[i]) + i16(B[i]))
    Part[i] = i8(max(-100, min(i16(A[i]) - i16(B[i]), 127)))
    Const[i] = saturate(i8, i16(A[i]) - 100)
}
compute h(A: u8[N], B: u8[N]) -> Sub: u8[N], Wrap: u8[N], Least: u8[N], Part: u8[N], Past: u8[N], Const: u8[N] {
    Sub[i] = saturate(u8, u16(A[i]) - u16(B[i]))
    Wrap[i] = u8(max(u16(A[i]) + u16(B[i]), 0))
    Least[i] = u8(min(max(i16(A[i]) - i16(B[i]), 1), 255))
    Part[i] = u8(min(u16(A[i]) + u16(B[i]), 254))
    Past[i] = u8(min(u16(A[i]) + u16(B[i]), 256))
    Const[i] = saturate(u8, 50 + u16(A[i]))
}
"""


def wrapped(x: np.ndarray, low: int = 0) -> np.ndarray:
    return (x - low) % 256 + low


A, B = (v.ravel() for v in np.mgrid[:256, :256])
WANTED = {
    "f": {
        "Add": np.minimum(A + B, 255), "Sub": np.maximum(A - B, 0), "Mean": (A + B + 1) // 2, "Low": (A + B) // 2,
        "Dif": abs(A - B), "Dist": abs(A - B), "S": np.clip(A - B, -128, 127),
    },
    "g": {
        "Add": np.clip(A + B - 256, -128, 127), "Sub": np.clip(A - B, -128, 127), "Wrap": wrapped(A + B, -128),
        "Most": wrapped(np.minimum(A + B - 256, 127), -128), "U": np.maximum(A + B - 256, 0),
        "Part": np.clip(A - B, -100, 127), "Const": np.maximum(A - 228, -128),
    },
    "h": {
        "Sub": np.minimum((A - B) % 2**16, 255), "Wrap": wrapped(A + B), "Least": np.clip(A - B, 1, 255),
        "Part": np.minimum(A + B, 254), "Past": wrapped(np.minimum(A + B, 256)), "Const": np.minimum(A + 50, 255),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", WANTED)
def test_all_pairs_of_bytes(name: str) -> None:
    _, library = parsed(PAIRS)
    p = made(library.files["t.tsched"].computes[name], library, N=A.size)
    least = p.inputs[0].dtype.name == "i8"
    given = {n: (v - 128).astype(np.int8) if least else v.astype(np.uint8) for n, v in (("A", A), ("B", B))}
    for q in (p, in_vectors(p)):
        got = run(q, given)
        for output, want in WANTED[name].items():
            np.testing.assert_array_equal(got[output], want, err_msg=output)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Add", {"vpaddusb"}), ("Sub", {"vpsubusb"}), ("Mean", {"vpavgb"}), ("Dif", {"vpmaxub", "vpminub", "vpsubb"}),
        ("Dist", {"vpmaxub", "vpminub", "vpsubb"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", [WIDE, NARROW], ids=["512", "256"])
def test_bytes_stay_bytes(name: str, words: set[str], target: Target) -> None:
    stage = next(line.strip() for line in PAIRS.splitlines() if line.strip().startswith(f"{name}["))
    p = in_vectors(build(f"compute f(A: u8[N], B: u8[N]) -> {name}: u8[N] {{ {stage} }}", N=256))
    assert words == calculated(p, target)


@pytest.mark.parametrize(
    ("source", "to", "wide", "narrow"),
    [
        ("i16", "u8", {"vpmovuswb", "vpmaxsw"}, {"vpackuswb"}),
        ("i16", "i8", {"vpmovswb"}, {"vpacksswb"}),
        ("i32", "i16", {"vpmovsdw"}, {"vpackssdw"}),
        ("f32", "u8", {"vmaxps", "vminps", "vcvttps2dq", "vpmovdb"}, {"vmaxps", "vminps", "vcvttps2dq", "vpshufb"}),
        ("f32", "i32", {"vmaxps", "vminps", "vcvttps2dq", "vcmpltps", "vcmpordps"}, {"vmaxps", "vcvttps2dq"}),
    ],
)
def test_conversions_of_vectors_are_vector_instructions(source: str, to: str, wide: set[str], narrow: set[str]) -> None:
    p = in_vectors(build(f"compute f(X: {source}[N]) -> Y: {to}[N] {{ Y[i] = saturate({to}, X[i]) }}", N=256))
    assert wide == calculated(p, WIDE)
    assert narrow <= calculated(p, NARROW)
    assert not any(re.match(r"vcvttss|vpinsr|vminss|vpmovzx", word) for word in calculated(p, NARROW))


def calculated(p: Program, target: Target) -> set[str]:
    """The vector instructions of a kernel that are not moves."""
    text = compile_kernel(lower_cpu(p), target, 1).view("asm")
    words = set(re.findall(r"^\s+(v\w+)", text, re.MULTILINE))
    return {w for w in words if not re.match(r"vmov|vzero|vpxor|vxor|v\w*broadcast", w)}


def test_a_type_may_be_an_attribute_and_an_operand_an_index_or_literals() -> None:
    text = """
compute f(X: f32[N]; T: dtype = u8) -> A: T[N], B: T[N], C: T[N], D: T[N] {
    A[i] = saturate(T, X[i])
    B[i] = saturate(T, 100 * i - 50)
    C[i] = saturate(T, 200 + 100)
    D[i] = saturate(T, -2.5) + saturate(T, N - 100)
}
"""
    assert checked(text) == []
    for t, ends in (("u8", (0, 255)), ("i8", (-128, 127)), ("i32", (-(2**31), 2**31 - 1))):
        got = everywhere(build(text, N=4, T=t), {"X": np.array([-1e10, -2.5, 99.9, 1e10], np.float32)})
        assert got["A"].tolist() == [ends[0], max(-2, ends[0]), 99, ends[1]]
        assert got["B"].tolist() == [max(-50, ends[0]), 50, min(150, ends[1]), min(250, ends[1])]
        assert got["C"].tolist() == [min(300, ends[1])] * 4
        assert got["D"].tolist() == [max(-2, ends[0]) + max(-96, ends[0])] * 4


def test_a_called_compute_saturates_to_its_own_type() -> None:
    text = """
compute narrowed(X: i32[N]; T: dtype = i8) -> Y: T[N] { Y[i] = saturate(T, X[i]) }
compute f(X: i32[N]) -> Y: u8[N] { let B = narrowed(X, T=u8)
    Y[i] = B[i] }
"""
    assert everywhere(build(text, N=3), {"X": np.array([-5, 5, 500], np.int32)})["Y"].tolist() == [0, 5, 255]


@pytest.mark.parametrize(
    ("value", "start", "repair"),
    [
        (
            "saturate(f32, X[i])",
            "error[E0416]: `saturate` converts to an integer or a float of 8 bits, and `f32` is neither\n --> t.tsched:1:52",
            "name the type first: `saturate(u8, X[i])`",
        ),
        (
            "saturate(bool, X[i])",
            "error[E0416]: `saturate` converts to an integer or a float of 8 bits, and `bool` is neither",
            "name the type first: `saturate(u8, X[i])`",
        ),
        (
            "saturate(X[i], u8)",
            "error[E0416]: `saturate` converts to an integer or a float of 8 bits, and `X[i]` is neither",
            "name the type first: `saturate(u8, u8)`",
        ),
        (
            "saturate(X[i], 3)",
            "error[E0416]: `saturate` converts to an integer or a float of 8 bits, and `X[i]` is neither",
            "name the type first: `saturate(u8, 3)`",
        ),
        ("saturate(u8)", "error[E0416]: `saturate` takes 2 values, but was given 1", ""),
        (
            "saturate(u8, X[i] > 3)",
            "error[E0416]: `saturate` works on numbers, not on bool",
            "convert it: `u8(X[i] > 3)`",
        ),
        ("saturate(u8, X[i]) + X[i]", "error[E0413]: `+` mixes u8 and i32", "i32(saturate(u8, X[i])) + X[i]"),
    ],
)
def test_mistakes(value: str, start: str, repair: str) -> None:
    (found,) = errors(f"compute f(X: i32[N]) -> Y: u8[N] {{ Y[i] = {value} }}", N=4)
    assert found.startswith(start)
    assert repair in found
