"""Tensor cores for bytes and for f64, and operands that lie in each way: kernels are exact, and the assembler takes them.

`make gpu DRAWS=20` draws more schedules of each case.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import assemble, sass_of, tool
from tensorc_dsl.reference.maths import tf32
from tests.gpu.kernels import ptx
from tests.gpu.tensor_cores import DRAWS, STDLIB, drawn, whole_numbers
from tests.gpu.test_swizzles import SWIZZLES, traffic
from tests.ir.test_assembly import read, said
from tests.stdlib.gpu_checks import task

CASES = {
    "both turned": ("any_turned(M=32, N=16, K=40, T=f16, Acc=f32)", "m16n8k16.row.col.f32.f16.f16.f32"),
    "i8": ("any_product(M=32, N=24, K=64, T=i8, Acc=i32)", "m16n8k32.row.col.s32.s8.s8.s32"),
    "u8 turned and odd": ("any_turned(M=17, N=9, K=33, T=u8, Acc=i32)", "m16n8k32.row.col.s32.u8.u8.s32"),
    "tf32": ("rounded_product(M=32, N=24, K=24)", "m16n8k8.row.col.f32.tf32.tf32.f32"),
    "tf32 turned and odd": ("rounded_turned(M=17, N=9, K=13)", "m16n8k8.row.col.f32.tf32.tf32.f32"),
    "f64": ("any_product(M=16, N=24, K=16, T=f64, Acc=f64)", "m8n8k4.row.col.f64.f64.f64.f64"),
    "f64 turned and odd": ("any_turned(M=9, N=17, K=6, T=f64, Acc=f64)", "m8n8k4.row.col.f64.f64.f64.f64"),
    "f8e4m3": ("any_product(M=32, N=24, K=64, T=f8e4m3, Acc=f32)", "m16n8k32.row.col.f32.e4m3.e4m3.f32"),
    "f8e5m2 turned and odd": ("any_turned(M=17, N=9, K=33, T=f8e5m2, Acc=f32)", "m16n8k32.row.col.f32.e5m2.e5m2.f32"),
    "two types": ("two_types(M=17, N=24, K=64, S=f8e4m3, T=f8e5m2)", "m16n8k32.row.col.f32.e4m3.e5m2.f32"),
    "two types, the other way": (
        "two_types(M=16, N=8, K=31, S=f8e5m2, T=f8e4m3)",
        "m16n8k32.row.col.f32.e5m2.e4m3.f32",
    ),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_kernels_are_exact_in_each_type(case: str, tmp_path: Path) -> None:
    text, instruction = CASES[case]
    cpu = "sm_89" if "f8e" in text else "sm_80"
    t = task(tmp_path, text, "tensor_core", cpu)
    inputs, (a, b) = whole_numbers(t.program)
    expected = a.T @ b.T if "turned" in text else a @ b.T if "two" in text else a @ b
    for program, found in drawn(t, DRAWS, {"tensor_core": True, **SWIZZLES}):
        code = ptx(found, cpu)
        assert instruction in code and ".local" not in code
        assert (".version 8.4" in code) == ("f8e" in text)
        if tool("ptxas") is not None:
            said = assemble(code, cpu, tmp_path / "k.cubin")
            assert re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)[-3:] == ["0", "0", "0"]
        if tool("ptxas") is not None and tool("nvdisasm") is not None and "f8e" in text:
            assert len(re.findall(r"\bQMMA\b", sass_of(code, cpu))) >= code.count("mma.sync")
        fault, outputs = emulated(found, program, inputs)
        assert fault == ""
        for out in outputs:
            np.testing.assert_array_equal(out["C"], expected)
        # Copies that turn bytes on the way store them one by one, and so do not come to all banks alike.
        fills = [x for x in traffic(found, program, inputs) if not x.write or "f64" in text]
        assert [x for x in fills if x.moves != x.least] == []


@pytest.mark.corpus
def test_products_of_tf32_round_their_operands_and_are_asked_for(tmp_path: Path) -> None:
    """Values with more bits than tensor cores take: the result is that of rounded operands, in sums of one term exactly."""
    t = task(tmp_path, "rounded_product(M=16, N=8, K=1)", "tensor_core")
    rng = np.random.default_rng(3)
    a, b = (rng.uniform(-2, 2, shape).astype(np.float32) for shape in ((16, 1), (1, 8)))
    (program, found), *_ = drawn(t, 1, {"tensor_core": True})
    assert len(re.findall(r"cvt\.rna\.tf32\.f32", ptx(found, "sm_80"))) >= 6
    fault, outputs = emulated(found, program, {"A": a, "B": b})
    assert fault == ""
    expected = (tf32(a.astype(np.float64)) @ tf32(b.astype(np.float64))).astype(np.float32)
    assert not np.array_equal(expected, a @ b)
    for out in outputs:
        np.testing.assert_array_equal(out["C"], expected)
    plain = task(tmp_path, "any_product(M=16, N=8, K=8, T=f32, Acc=f32)", "tensor_core")
    assert not any("tensorize(" in plain.sample(seed).text for seed in range(4))


def test_the_fragments_of_tf32_are_those_of_the_manual() -> None:
    """The instruction's own registers hide its operands from the check; without them it compares the layouts."""
    text = STDLIB.read_text(encoding="utf-8")
    start = text.index("intrinsic mma_m16n8k8_tf32")
    one = text[start : text.index("\n\n", start)]
    opcode = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 C, A, B, C;"
    plain = re.sub(r'asm ".*"', f'asm "{opcode}"', one)
    assert read(plain).name == "mma_m16n8k8_tf32"
    assert len(said(plain.replace("reg: k / 4 * 2 + i / 8", "reg: k / 4 + i / 8 * 2"))) == 1
