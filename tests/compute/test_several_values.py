"""Reducers of several values: the reference against NumPy, the order of steps, and schedules that take them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import load
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.equivalence.validate import Valid, validate
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, LoopRef
from tests.compute.texts import build

EXAMPLE = Path(__file__).parents[2] / "examples" / "reducers.tsched"
REDUCERS, _, REST = EXAMPLE.read_text(encoding="utf-8").partition("\n\n")[2].partition("\ncompute ")
COMPUTES = {f"{t.partition('(')[0]}": t.partition("\n\n")[0] for t in f"\ncompute {REST}".split("\ncompute ")[1:]}
SIZES = [1, 2, 7, 13]


def program(name: str, n: int) -> Program:
    return build(f"{REDUCERS}\ncompute {COMPUTES[name]}", M=3, N=n)


def rows(n: int) -> np.ndarray[Any, Any]:
    """Rows with equal values, and with NaN."""
    x = np.random.default_rng(n).integers(-2, 3, (3, n)).astype(np.float32)
    x[1, n // 2 :: 3] = np.nan
    return x


def expected(name: str, x: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    x = x.astype(np.float64)
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(1, keepdims=True))
        return {
            "positions": {"V": x.max(1), "I": x.argmax(1)},
            "variance": {"V": x.var(1)},
            "softmax": {"Y": e / e.sum(1, keepdims=True)},
            "log_total": {"L": x.max(1) + np.log(e.sum(1))},
        }[name]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ["positions", "variance", "softmax", "log_total"])
def test_the_reference_is_numpys(name: str, n: int) -> None:
    p, x = program(name, n), rows(n)
    for run in (evaluate, interpret):
        found = run(p, {"X": x})
        for out, want in expected(name, x).items():
            np.testing.assert_allclose(found[out], want, 1e-5, 1e-6, err_msg=f"{name} {out}")


@pytest.mark.parametrize(
    ("name", "block"), [("positions", "V"), ("variance", "n"), ("softmax", "m"), ("log_total", "m")]
)
def test_parts_of_a_reduction_are_proved_to_be_the_whole(name: str, block: str) -> None:
    whole = program(name, 7)
    for axis in (0, 1):
        made = apply(whole, "split", LoopRef("j"), (None, 4), partial=True)
        assert isinstance(made.results, tuple)
        p = apply(made.program, "rfactor", BlockRef(block), made.results[axis]).program
        assert isinstance(validate(whole, p), Valid)
        found, x = interpret(p, {"X": rows(7)}), rows(7)
        for out, want in expected(name, x).items():
            np.testing.assert_allclose(found[out], want, 1e-5, 1e-6, err_msg=f"{name} {out}")


def infinite_rows(n: int) -> np.ndarray[Any, Any]:
    """A row of the identity of a maximum, one with a single number, and one with an infinity that is greater."""
    x = np.full((3, n), -np.inf, np.float32)
    x[1, n // 2], x[2, n - 1] = 1.0, np.inf
    return x


OF_INFINITE_ROWS = {"V": [-np.inf, 1.0, np.inf], "L": [-np.inf, 1.0, np.inf]}
"""The greatest value of each, and the logarithm of the sum of its exponentials."""


@pytest.mark.parametrize("n", SIZES)
def test_rows_of_infinities(n: int) -> None:
    x = infinite_rows(n)
    for run in (evaluate, interpret):
        found = {**run(program("positions", n), {"X": x}), **run(program("log_total", n), {"X": x})}
        for out, want in {**OF_INFINITE_ROWS, "I": x.argmax(1)}.items():
            np.testing.assert_array_equal(found[out], want)
        y = run(program("softmax", n), {"X": x})["Y"]
        assert np.isnan(y[0]).all()
        np.testing.assert_array_equal(y[1], x[1] == 1.0)


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("first_of_rows", "positions"),
        ("variances", "variance"),
        ("probabilities", "softmax"),
        ("log_sums", "log_total"),
    ],
)
def test_kernels_for_cpus(task: str, name: str) -> None:
    """The tasks of the example: rows with equal values, with NaN, and of infinities."""
    t = load(EXAMPLE, threads=2)[task]
    kernel, outputs = t.replay(t.sample(0)), [b.name for b in t.program.outputs]
    infinite = infinite_rows(101)
    wanted: list[tuple[Any, dict[str, Any]]] = [(rows(101), expected(name, rows(101)))]
    if name in ("positions", "log_total"):
        wanted.append((infinite, {**OF_INFINITE_ROWS, "I": infinite.argmax(1)}))
    for x, values in wanted:
        found = kernel(np.resize(x, (37, 101)))
        for out, array in zip(outputs, found if len(outputs) > 1 else [found], strict=True):
            np.testing.assert_allclose(array[:3], values[out], 1e-4, 1e-5, err_msg=f"{task} {out}")


MADE = {
    "+": ("{a} + {b}", "0", np.add.reduce),
    "max": ("max({a}, {b})", "-9223372036854775808", np.maximum.reduce),
    "min": ("min({a}, {b})", "9223372036854775807", np.minimum.reduce),
}


@pytest.mark.parametrize("seed", range(4))
def test_reducers_of_any_values(seed: int) -> None:
    """A reducer of two or three integers, each combined by an operation of its own; whole, and in parts of any axis."""
    rng = np.random.default_rng(seed)
    kinds = [str(k) for k in rng.choice([*MADE], int(rng.integers(2, 4)))]
    m, n = int(rng.integers(1, 4)), int(rng.choice([1, 2, 5, 11]))
    numbers = range(len(kinds))

    def several(parts: list[str]) -> str:
        return f"({', '.join(parts)})"

    before, after = ([f"{x}{k}" for k in numbers] for x in "ab")
    values = [MADE[k][0].format(a=a, b=b) for k, a, b in zip(kinds, before, after, strict=True)]
    outs = ", ".join(f"Y{k}: i64[M]" for k in numbers)
    terms = several([f"X[i, k] * {k + 1} + {k}" for k in numbers])
    whole = build(
        f"reducer f({several(before)}, {several(after)}) = {several(values)} "
        f"identity {several([MADE[k][1] for k in kinds])}\n"
        f"compute g(X: i64[M, K]) -> {outs} {{ {several([f'Y{k}[i]' for k in numbers])} = reduce f[k] {terms} }}",
        M=m,
        K=n,
    )
    split = apply(whole, "split", LoopRef("k"), (None, 3), partial=True)
    assert isinstance(split.results, tuple)
    parts = apply(split.program, "rfactor", BlockRef("Y0"), split.results[seed % 2]).program
    assert isinstance(validate(whole, parts), Valid)
    x = rng.integers(-9, 9, (m, n))
    for found in (evaluate(whole, {"X": x}), interpret(whole, {"X": x}), interpret(parts, {"X": x})):
        for k, kind in enumerate(kinds):
            np.testing.assert_array_equal(found[f"Y{k}"], MADE[kind][2](x * (k + 1) + k, axis=1))


def test_the_identity_of_nothing() -> None:
    p = build("reducer f((a, b), (c, d)) = (a + c, max(b, d)) identity (0, 0)\n"
              "compute g(X: u8[M, N]) -> S: u8[M], L: u8[M] { (S[i], L[i]) = reduce f[j] (X[i, j], X[i, j]) }",
              M=2, N=0)  # fmt: skip
    found = evaluate(p, {"X": np.zeros((2, 0), np.uint8)})
    assert found["S"].tolist() == [0, 0] and found["L"].tolist() == [0, 0]


def test_a_program_says_its_reducer_and_is_read_back() -> None:
    p = program("variance", 7)
    assert parse_program(Source("p", format_program(p))) == p
    assert "let" not in format_program(p) and '@("reducer", "moments((s, m, n), (t, l, k)) = (' in format_program(p)


def test_a_value_that_begins_elsewhere_is_no_part() -> None:
    """Stores whose values do not begin with the identity are not the reduction that the laws are about."""
    p = program("positions", 7)
    text = format_program(p).replace("V[vi] = -inf }", "V[vi] = 0.0 }")
    assert text != format_program(p)
    other = parse_program(Source("p", text))
    assert not isinstance(validate(p, other), Valid)
