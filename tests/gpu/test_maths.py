"""Maths functions on a GPU: all of them have code for every type that they take, and emulated kernels are right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.codegen.ptx import device_module, ptx_of
from tensorc_dsl.backend.cuda.codegen.view import cuda_text
from tensorc_dsl.backend.cuda.compiled import assemble, tool
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.dtypes import DTYPES
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded

N = 11


def every(t: str) -> tuple[list[str], Program, Program]:
    """The functions of a type, and a program with one block for each, without and with a schedule. Some angles are large."""
    names = [name for name, m in MATHS.items() if m.accepts(DTYPES[t])]
    scaled = "A[v] * 1e15 if v % 3 == 0 else A[v]" if t == "f64" else "A[v]"
    lines: list[str] = []
    for k, name in enumerate(names):
        first = "abs(A[v]) + 1.0" if name == "acosh" else scaled if name in ("sin", "cos", "tan") else "A[v]"
        call = f"{name}({first}{', B[v]' * (MATHS[name].count == 2)})"
        value = f"{t}({call})" if MATHS[name].tells else call
        lines.append(f"for i in {N} {{ block C{k} {{ spatial v in {N} = i; C{k}[v] = {value} }} }}")
    params = ", ".join(f"{x}: {t}[{N}]" for x in ("A", "B", *(f"C{k}" for k in range(len(names)))))
    body = "\n".join(lines)
    bound = body.replace("for i", 'bound("thread.x") for i')
    plain, scheduled = (
        parse_program(Source("p.tsched", f"program p({params}) {{\n{x}\n}}\n"))
        for x in (body, f'bound("block.x") for b in 1 {{\n{bound}\n}}')
    )
    return names, plain, scheduled


@pytest.mark.corpus
@pytest.mark.parametrize("t", ["f64", "f32", "bf16", "i32", "u8"])
def test_every_function_of_a_type_has_code_and_is_right(t: str) -> None:
    names, program, scheduled = every(t)
    kernels = lower_device(scheduled)
    assert ".visible .entry" in ptx_of(device_module(kernels), "sm_80")
    assert ("inline T popcount(T a)" in cuda_text(kernels)) == DTYPES[t].is_integer
    inputs = make_inputs(program, 0)
    want, allowed = bounded(program, inputs)
    fault, found = emulated(kernels, program, inputs)
    assert fault == ""
    for made in found:
        for k, name in enumerate(names):
            c = f"C{k}"
            near = np.abs(made[c] - want[c]) <= allowed[c]
            assert (near | np.isnan(made[c]) & np.isnan(want[c])).all(), name


@pytest.mark.skipif(tool("ptxas") is None, reason="there is no ptxas")
@pytest.mark.parametrize("t", ["f64", "i64"])
def test_ptxas_takes_the_code_of_every_function(t: str, tmp_path: Path) -> None:
    _, _, scheduled = every(t)
    assert "Used" in assemble(ptx_of(device_module(lower_device(scheduled)), "sm_80"), "sm_80", tmp_path / "k.cubin")
