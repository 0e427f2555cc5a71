"""Lanes at known distances: picked from whole vectors, right for all types and lengths, and never read past the end."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.codegen.lane_loads import moving
from tensorc_dsl.ir.expr import Binary, Var, add, index, mul, sub
from tensorc_dsl.ir.program import Program
from tests.codegen.native import compiled, program, run

SUBSCRIPTS = (
    "i * 2", "i * 2 + 1", "i * 3 + 1", "i * 4 + 3", "i * 5", "N - 1 - i", "2 * N - 1 - i * 2", "i / 2", "(i + 1) / 2",
    "(i + 1) / 3", "i * 3 / 2", "i / 2 + i % 2 * 2", "i / 4 * 4 + 3 - i % 4", "i % 4", "max(i * 2 - 3, 0)",
)  # fmt: skip
NUMPY = {"f32": np.float32, "f64": np.float64, "u8": np.uint8, "i16": np.int16, "bf16": np.uint16, "bool": np.bool_}


def places(subscript: str, n: int) -> list[int]:
    text = subscript.replace("N", str(n)).replace("/", "//")
    return [int(eval(text, {"i": i, "max": max})) for i in range(n)]


def taken(t: str, n: int, subscripts: tuple[str, ...] = SUBSCRIPTS) -> Program:
    """For each subscript rows of `n` lanes, the last of which may end at the last element of an array."""
    inputs = ", ".join(f"X{k}: {t}[2, {max(places(s, n)) + 1}]" for k, s in enumerate(subscripts))
    outputs = ", ".join(f"Y{k}: {t}[2, {n}]" for k in range(len(subscripts)))
    blocks = "\n".join(
        f"for y{k} in 2 {{ vectorized for x{k} in {n} {{ block Y{k} {{ spatial v in 2 = y{k}; spatial i in {n} = x{k}\n"
        f"Y{k}[v, i] = X{k}[v, {s.replace('N', str(n))}] }} }} }}"
        for k, s in enumerate(subscripts)
    )
    return program(f"program taken({inputs}, {outputs}) {{\n{blocks}\n}}")


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("t", "n"), [*(("f32", n) for n in (1, 3, 8, 21, 70, 200)), *((t, 37) for t in NUMPY if t != "f32")]
)
def test_each_lane_has_its_own_element(t: str, n: int) -> None:
    p = taken(t, n)
    rng = np.random.default_rng(n)
    shapes = [(2, max(places(s, n)) + 1) for s in SUBSCRIPTS]
    given = {
        f"X{k}": rng.integers(0, 2 if t == "bool" else 99, shape).astype(NUMPY[t]) for k, shape in enumerate(shapes)
    }
    found = run(p, given)
    for k, s in enumerate(SUBSCRIPTS):
        np.testing.assert_array_equal(found[f"Y{k}"], given[f"X{k}"][:, places(s, n)], err_msg=s)


@pytest.mark.parametrize(
    ("subscript", "vectors"), [("i * 2 + 1", 2), ("i * 3", 3), ("N - 1 - i", 1), ("(i + 1) / 2", 2)]
)
def test_no_lane_is_loaded_by_itself(subscript: str, vectors: int) -> None:
    """Every second element of a row took a load each."""
    text = compiled(taken("f32", 64, (subscript,)), threads=1).llvm_ir
    assert "gather" not in text
    assert "load float" not in text
    pieces = len(re.findall(r"store <\d+ x float>", text))
    assert len(re.findall(r"load <\d+ x float>", text)) == vectors * pieces


@pytest.mark.parametrize("subscript", ["i * 2 + 1", "i * 3", "N - 1 - i", "i * 3 / 2", "i / 2"])
def test_whole_vectors_are_powers_of_two_long(subscript: str) -> None:
    """LLVM took each vector of 13 elements apart into three loads. A block of some hundreds of them took it 14 s."""
    text = compiled(taken("f32", 13, (subscript,)), threads=1).llvm_ir
    found = {int(n) for n in re.findall(r"load <(\d+) x float>", text)}
    assert found
    assert all(n & (n - 1) == 0 for n in found), found


def test_what_does_not_move_with_the_lanes_is_not_looked_at() -> None:
    i, j = Var("i"), Var("j")
    both = Binary("/", add(i, j), index(2))
    assert moving(sub(add(mul(j, index(70)), mul(add(mul(i, index(2)), j), index(3))), j), "i") == mul(
        mul(i, index(2)), index(3)
    )
    assert moving(add(add(j, both), i), "i") == add(both, i)
    assert moving(sub(j, i), "i") == sub(j, i)


def test_lanes_far_from_each_other_are_loaded_one_by_one() -> None:
    assert "load <" not in compiled(taken("f32", 64, ("i * 37",)), threads=1).llvm_ir
