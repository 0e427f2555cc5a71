"""Minima of maxima: NaN where an operand is, as in NumPy, with one question for two leaves."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.codegen.compile import write_module
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.ir.program import Program
from tests.codegen.native import program, run

N = 83
TREES = (
    "max(min(A[v], B[v]), min(max(A[v], B[v]), C[v]))",
    "min(max(A[v], 0.25), max(B[v], min(C[v], 0.5)))",
    "min(A[v], min(B[v], min(C[v], D[v])))",
    "max(max(A[v], B[v]), max(C[v], D[v])) - min(min(A[v], B[v]), min(C[v], D[v]))",
    "min(max(A[v] + B[v], C[v] * D[v]), max(A[v], min(C[v], D[v]))) * 2.0",
    "max(A[v], B[v]) if C[v] < 0.5 else min(max(A[v], C[v]), max(D[v], B[v]))",
    "min(max(A[v], A[v]), max(A[v], B[v]))",
)


def made(tree: str, kind: str, t: str, inputs: str = "ABCD") -> Program:
    given = ", ".join(f"{x}: {t}[{N}]" for x in inputs)
    return program(f"""program f({given}, Y: {t}[{N}]) {{
        {kind} i in {N} {{ block Y {{ spatial v in {N} = i
            Y[v] = {tree} }} }}
    }}""")


def meant(tree: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    text = re.sub(r"\[v\]", "", tree).replace("min(", "np.minimum(").replace("max(", "np.maximum(")
    if " if " in text:
        then, rest = text.split(" if ")
        cond, other = rest.split(" else ")
        text = f"np.where({cond}, {then}, {other})"
    with np.errstate(all="ignore"):
        return eval(text, {"np": np, **arrays})


@pytest.mark.corpus
@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.parametrize("kind", ["for", "vectorized for"])
@pytest.mark.parametrize("tree", TREES)
def test_it_is_nan_where_an_operand_is(tree: str, kind: str, t: str) -> None:
    rng = np.random.default_rng(len(tree))
    arrays: dict[str, np.ndarray] = {}
    for name in "ABCD":
        a = rng.integers(-2, 3, N).astype(np.float32 if t == "f32" else np.float64) / 2
        a[rng.random(N) < 0.15] = np.nan
        a[rng.random(N) < 0.1] = np.inf
        a[rng.random(N) < 0.1] = -np.inf
        a[rng.random(N) < 0.05] = -0.0
        arrays[name] = a
    got = run(made(tree, kind, t), arrays)["Y"]
    np.testing.assert_array_equal(got, meant(tree, arrays))


def llvm(p: Program, features: tuple[str, ...] = ("avx",)) -> str:
    return write_module(lower_cpu(p), "kernel", 256, 1, features)


def questions(text: str) -> int:
    return len(re.findall(r"fcmp ord", text))


MEDIAN = "max(min(max(A[v], B[v]), C[v]), min(max(D[v], E[v]), max(A[v], min(B[v], E[v]))))"


def test_two_leaves_are_asked_with_one_comparison() -> None:
    p = made(MEDIAN, "for", "f32", "ABCDE")
    text = llvm(p)
    assert "llvm.m" not in text
    assert questions(text) == math.ceil(5 / 2)


def test_only_what_was_no_integer_is_asked() -> None:
    tree = "max(max(min(f32(C[v]), X[v]), min(f32(A[v]), X[v])), max(X[v], f32(B[v])))"
    text = f"""program f(A: i32[{N}], B: i32[{N}], C: i32[{N}], X: f32[{N}], Y: f32[{N}]) {{
        for i in {N} {{ block Y {{ spatial v in {N} = i
            Y[v] = {tree} }} }}
    }}"""
    found = llvm(program(text))
    assert questions(found) == 1


@pytest.mark.parametrize(
    ("tree", "features"), [(MEDIAN, ()), ("max(A[v], B[v])", ("avx",)), ("min(max(A[v], 0.0), 1.0)", ("avx",))]
)
def test_where_it_takes_no_fewer_instructions_each_is_asked(tree: str, features: tuple[str, ...]) -> None:
    text = llvm(made(tree, "for", "f32", "ABCDE"), features)
    assert questions(text) == 0 and "llvm.m" in text
