"""Functions by instructions that approximate are within what the tolerance allows, and checks notice a larger error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench.gpu_maths import CASES, measure
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.codegen import maths
from tensorc_dsl.backend.cuda.codegen.maths import INSTRUCTIONS, ROUNDED, HardwareMaths
from tensorc_dsl.backend.cuda.codegen.ptx import device_module, ptx_of
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.llvm.codegen.arithmetic import Lanes
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.contraction import contracted
from tensorc_dsl.ir.dtypes import F16, F32, DType, unit_roundoff
from tensorc_dsl.ir.maths import BEFORE_ROUNDING
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import APPROX, Program
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.tuning.measure.check import compare

STEP = 65537
"""65536 arguments of each function, in all exponents. All of them: `python -m bench.gpu_maths`."""


@pytest.mark.parametrize(("function", "t"), CASES, ids=lambda x: getattr(x, "name", x))
def test_functions_are_within_what_is_allowed(function: str, t: DType) -> None:
    found = measure(function, t, STEP)
    assert found.error <= found.limit, found


def test_what_is_rounded_has_limits_and_they_are_below_its_own_roundoff() -> None:
    assert ROUNDED.keys() == BEFORE_ROUNDING.keys()
    assert all(e <= 1.1 * unit_roundoff(F16) for e in BEFORE_ROUNDING.values())


def test_a_function_with_a_larger_error_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The power without what its argument lacks is as near as allowed next to 0 only."""

    def worse(m: HardwareMaths, x: Lanes) -> Lanes:
        return m.made("ex2", x * 1.44269504)

    monkeypatch.setitem(maths.SINGLE, "exp", worse)  # pyright: ignore[reportArgumentType]
    assert measure("exp", F32, STEP).error > 8


def programs(value: str, t: str = "f16", count: int = 64) -> tuple[Program, Program]:
    """`C[i] = value`, without and with a schedule."""
    block = f"block C {{ spatial v in {count} = i; C[v] = {value} }}"
    params = f"A: f32[{count}], B: f32[{count}], C: {t}[{count}]"
    plain, bound = f"for i in {count} {{ {block} }}", f'bound("thread.x") for i in {count} {{ {block} }}'
    first, second = (
        parse_program(Source("p.tsched", f"program p({params}) {{\n{x}\n}}\n"))
        for x in (plain, f'bound("block.x") for b in 1 {{ {bound} }}')
    )
    return first, second


@pytest.mark.parametrize("t", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(
    "value", ["exp(A[v])", "exp((A[v] - B[v]) * 0.125)", "exp(A[v] - B[v])", "sigmoid(A[v] * 2.0)", "tanh(A[v] + B[v])"]
)
@pytest.mark.parametrize("size", [1.0, 30.0, 1e4])
def test_results_are_within_the_tolerance(value: str, t: str, size: float) -> None:
    plain, scheduled = programs(value if t == "f32" else f"{t}({value})", t)
    rng = np.random.default_rng(3)
    a = rng.uniform(-size, size, 64).astype(np.float32)
    inputs = {"A": a, "B": a + rng.uniform(-4, 4, 64).astype(np.float32)}
    inputs["A"][:4], inputs["B"][:4] = (0.0, -np.inf, np.nan, -np.inf), (0.0, 1.0, 1.0, -3.4e38)
    want, allowed = bounded(plain, inputs)
    fault, found = emulated(lower_device(scheduled), plain, inputs)
    assert fault == ""
    for made in found:
        assert not compare("C", made["C"], want["C"], allowed["C"], plain.outputs[0].dtype).fault


def with_error(p: Program, approx: float) -> Program:
    """The program of a task that allows functions of f32 an error."""
    return replace(p, annotations=((APPROX, approx),))


@pytest.mark.parametrize(
    "value",
    ["exp(A[v])", "exp((A[v] - B[v]) * 0.125)", "exp2(B[v] - A[v])", "sigmoid(A[v] * 2.0)", "tanh(A[v])", "erf(A[v])"],
)
@pytest.mark.parametrize("most", [1.0, 30.0, 1e4])
def test_what_a_task_allows_is_in_the_tolerance_and_no_more(value: str, most: float) -> None:
    plain, scheduled = (with_error(p, 1e-3) for p in programs(value, "f32"))
    rng = np.random.default_rng(3)
    a = rng.uniform(-most, most, 64).astype(np.float32)
    inputs = {"A": a, "B": a + rng.uniform(-4, 4, 64).astype(np.float32)}
    inputs["A"][:4], inputs["B"][:4] = (0.0, -np.inf, np.nan, -np.inf), (0.0, 1.0, 1.0, -3.4e38)
    want, allowed = bounded(plain, inputs)
    fault, found = emulated(lower_device(scheduled), plain, inputs)
    assert fault == ""
    for made in found:
        assert not compare("C", made["C"], want["C"], allowed["C"], plain.outputs[0].dtype).fault
    _, before = bounded(programs(value, "f32")[0], inputs)
    finite = np.isfinite(want["C"]) & np.isfinite(before["C"])
    more, size = (allowed["C"] - before["C"])[finite], np.abs(want["C"])[finite]
    if "B" not in value:  # a product with what is subtracted has a rounding, too
        assert (
            more <= 1.001 * BEFORE_ROUNDING.get(value.partition("(")[0], 0.0) * size + 1e-9 * before["C"][finite]
        ).all()


@pytest.mark.parametrize(("approx", "short"), [(2e-5, True), (1e-5, False)])
def test_shorter_instructions_are_taken_where_their_error_is_allowed(approx: float, short: bool) -> None:
    (_, scheduled) = (with_error(p, approx) for p in programs("exp(A[v] - B[0])", "f32"))
    ptx = ptx_of(device_module(lower_device(scheduled)), "sm_80")
    assert ("min.NaN.f32" not in ptx) == short


def test_an_error_that_is_not_allowed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def worse(m: HardwareMaths, x: Lanes) -> Lanes:
        return m.made("ex2", x * 1.4429)

    monkeypatch.setitem(maths.ROUNDED, "exp2", worse)  # pyright: ignore[reportArgumentType]
    plain, scheduled = (with_error(p, 2e-5) for p in programs("exp2(A[v])", "f32"))
    inputs = {x: np.linspace(0.5, 2.5, 64, dtype=np.float32) for x in "AB"}
    want, allowed = bounded(plain, inputs)
    _, (made, *_) = emulated(lower_device(scheduled), plain, inputs)
    assert compare("C", made["C"], want["C"], allowed["C"], F32).fault


def test_a_difference_that_is_stored_first_has_other_bits() -> None:
    one = str(contracted(with_error(programs("exp(A[v] - B[v])", "f32")[0], 2e-5)))
    assert "exp.approx.less" in one
    assert "exp.approx" not in str(contracted(with_error(programs("exp(A[v] - B[v])", "f32")[0], 1e-6)))


def test_a_task_says_what_error_it_allows(tmp_path: Path) -> None:
    head = "use std.gpu.default\nuse std.gpu.targets.{sm_80}\nuse std.ops.{softmax}\n"
    file = tmp_path / "s.tsched"
    file.write_text(f"{head}task t = softmax(M=2, N=40, approx=2e-5)\n", encoding="utf-8")
    done = CliRunner().invoke(main, ["run", str(file), "t", "--emulate"])
    assert "functions of f32 within 2e-05 of their results" in done.stdout
    file.write_text(f"{head}task t = softmax(M=2, N=40, approx=2)\n", encoding="utf-8")
    done = CliRunner().invoke(main, ["check", str(file)])
    assert "`approx` is a relative error between 0 and 1, but was given 2" in done.output


@pytest.mark.parametrize(
    ("value", "has", "lacks"),
    [
        ("f16(exp((A[v] - B[v]) * 0.125))", "ex2.approx.ftz.f32", "rcp"),
        ("f16(tanh(A[v]))", "tanh.approx.f32", "ex2"),
        ("f16(sigmoid(A[v]))", "rcp.approx.ftz.f32", "div"),
        ("f16(sin(A[v]))", "fma", "sin.approx"),
        ("f16(log(abs(A[v]) + 1.0))", "fma", "lg2.approx"),
        ("f16(f64(A[v]))", "cvt", "approx"),
    ],
)
def test_ptx_has_the_instructions(value: str, has: str, lacks: str) -> None:
    ptx = ptx_of(device_module(lower_device(programs(value)[1])), "sm_80")
    assert has in ptx
    assert lacks not in ptx


def test_the_scale_of_an_exponential_is_that_of_base_two() -> None:
    """One product and one sum before the instruction: log2 e is a part of the factor."""
    ptx = ptx_of(device_module(lower_device(programs("f16(exp((A[v] - B[0]) * 0.125))")[1])), "sm_80")
    before = ptx[: ptx.index("ex2.approx")].splitlines()
    floats = [
        line for line in before if any(f"{op}.rn.f32" in line or f"{op}.f32" in line for op in ("fma", "mul", "add"))
    ]
    assert len(floats) == 2, floats


def test_a_stored_result_has_other_bits_than_one_that_is_rounded_at_once() -> None:
    one, other = (contracted(programs(v)[0]) for v in ("f16(exp(A[v]))", "f16(sin(A[v]))"))
    assert "exp.f16" in str(one) and "sin.f16" not in str(other)


def test_instructions_state_errors_of_less_than_what_uses_them() -> None:
    assert all(0 < x.error <= 2.0**-11 for x in INSTRUCTIONS.values())
