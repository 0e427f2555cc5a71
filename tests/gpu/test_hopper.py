"""`std.gpu.hopper`: each draw with instructions of warpgroups is exact, and ptxas keeps it in registers.

`make gpu DRAWS=20` draws more schedules of each case.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl as td
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import assemble, sass_of, tool
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tests.examples import FIRST
from tests.gpu.kernels import ptx, whole
from tests.gpu.tensor_cores import DRAWS, whole_numbers
from tests.stdlib.gpu_checks import COMPUTES

CASES: dict[str, tuple[str, dict[str, Decision], Callable[..., Array]]] = {
    "rows": ("any_product(M=64, N=128, K=128, T=f16, Acc=f32)", {}, lambda a, b: a @ b),
    "bf16": ("any_product(M=128, N=64, K=64, T=bf16, Acc=f32)", {}, lambda a, b: a @ b),
    "columns of the left": ("half_columns(M=128, N=64, K=64)", {}, lambda a, b: a.T @ b),
    "columns of the right": ("half_transposed(M=64, N=64, K=128)", {}, lambda a, b: a @ b.T),
    "128 columns at once": (
        "half_transposed(M=64, N=256, K=64)",
        {"inner_1": (1, 2, 2, 64), "times": 2},
        lambda a, b: a @ b.T,
    ),
    "256 columns at once": (
        "half_transposed(M=64, N=256, K=64)",
        {"inner_1": (1, 1, 4, 64), "times": 4},
        lambda a, b: a @ b.T,
    ),
    "128 columns of rows at once": (
        "half_matmul(M=64, N=256, K=64)",
        {"inner_1": (1, 1, 4, 64), "times": 2},
        lambda a, b: a @ b,
    ),
    "256 columns of rows at once": (
        "any_product(M=64, N=256, K=64, T=bf16, Acc=f32)",
        {"inner_1": (1, 1, 4, 64), "times": 4, "copied_1": "tma"},
        lambda a, b: a @ b,
    ),
    "columns of the left, 128 at once": (
        "half_columns(M=64, N=128, K=64)",
        {"inner_1": (1, 1, 2, 64), "times": 2},
        lambda a, b: a.T @ b,
    ),
    "columns of both": ("any_turned(M=64, N=64, K=64, T=f16, Acc=f32)", {}, lambda a, b: a.T @ b.T),
    "odd": ("half_matmul(M=50, N=70, K=72)", {}, lambda a, b: a @ b),
    "batched": ("half_batched(B=2, M=64, N=64, K=64)", {}, lambda a, b: a @ b),
    "tma": (
        "half_transposed(M=64, N=64, K=192)",
        {"copied": "tma", "copied_1": "tma", "ahead": 2},
        lambda a, b: a @ b.T,
    ),
    "roles": (
        "half_transposed(M=256, N=64, K=192)",
        {"inner": (1, 4, 1, 64), "copied": "tma", "copied_1": "tma", "beside": True, "ahead": 2},
        lambda a, b: a @ b.T,
    ),
    "a role beyond the array": (
        "half_matmul(M=50, N=136, K=72)",
        {"copied": "tma", "copied_1": "tma", "filled": True, "filled_1": True, "beside": True, "ahead": 1},
        lambda a, b: a @ b,
    ),
    "tiles beyond the array": (
        "half_matmul(M=50, N=72, K=72)",
        {"copied": "tma", "copied_1": "tma", "filled": True, "filled_1": True},
        lambda a, b: a @ b,
    ),
    "tiles of a batch": (
        "half_batched(B=2, M=64, N=64, K=64)",
        {"copied": "tma", "copied_1": "tma"},
        lambda a, b: a @ b,
    ),
    "e4m3": ("two_types(M=64, N=64, K=256, S=f8e4m3, T=f8e4m3)", {}, lambda a, b: a @ b.T),
    "e4m3, boxes": (
        "two_types(M=128, N=64, K=256, S=f8e4m3, T=f8e4m3)",
        {"copied": "tma", "copied_1": "tma", "ahead": 2},
        lambda a, b: a @ b.T,
    ),
    "e5m2, 128 columns at once": (
        "two_types(M=64, N=256, K=128, S=f8e5m2, T=f8e5m2)",
        {"inner_1": (1, 2, 2, 64), "times": 2},
        lambda a, b: a @ b.T,
    ),
    "e4m3 and e5m2, odd": ("two_types(M=50, N=70, K=144, S=f8e4m3, T=f8e5m2)", {}, lambda a, b: a @ b.T),
    "e5m2 and e4m3, boxes": (
        "two_types(M=64, N=64, K=128, S=f8e5m2, T=f8e4m3)",
        {"copied": "tma", "copied_1": "tma"},
        lambda a, b: a @ b.T,
    ),
    "e4m3, rows of both": ("any_product(M=64, N=64, K=128, T=f8e4m3, Acc=f32)", {}, lambda a, b: a @ b),
    "e4m3, columns of both": ("any_turned(M=64, N=64, K=128, T=f8e4m3, Acc=f32)", {}, lambda a, b: a.T @ b.T),
    "bias": ("half_biased(M=64, N=64, K=64)", {}, lambda a, b, d: np.maximum(a @ b + d, 0)),
}


COLUMNS = {
    "128 columns at once": 2,
    "256 columns at once": 4,
    "e5m2, 128 columns at once": 2,
    "128 columns of rows at once": 2,
    "256 columns of rows at once": 4,
    "columns of the left, 128 at once": 2,
}
"""How many times 64 columns an instruction takes."""


def hopper(folder: Path, text: str) -> Task:
    """The task `t = text` over `std.gpu.hopper`, for a GPU of compute capability 9.0."""
    path = folder / "t.tsched"
    path.write_text(f"use std.gpu.hopper\nuse std.gpu.targets.{{sm_90a}}\n{COMPUTES}\ntask t = {text} with hopper\n")
    return td.load(path)["t"]


def drawn(t: Task, decisions: dict[str, Decision], asked: str = "") -> list[tuple[Program, DeviceProgram]]:
    """The first `DRAWS` programs with some draws decided, and their kernels for the target of the task; those alone in which
    a draw of the name `asked` is made."""
    from_here = t.drawn_from(condition(t.model, decisions))
    out: list[tuple[Program, DeviceProgram]] = []
    for seed in range(20 * DRAWS):
        if len(out) < DRAWS:
            try:
                trace = whole(from_here.sample(FIRST + seed))
            except ScheduleRefusal:
                continue
            if asked and all(d.name != asked for d in trace.draws):
                continue
            found = t.lower(trace)
            assert isinstance(found, DeviceProgram)
            out.append((trace.program, found))
    assert len(out) == DRAWS
    return out


def test_the_view_has_what_runs_beside_threads(tmp_path: Path) -> None:
    """Copies by TMA in a role of their own, and products by descriptors, each as often as in PTX."""
    t = hopper(tmp_path, "half_matmul(M=128, N=64, K=256)")
    drawn: dict[str, Decision] = {"copied": "tma", "copied_1": "tma", "beside": True, "ahead": 1, "warpgroups": True}
    trace = t.drawn_from(condition(t.model, drawn)).sample(0)
    text, found = t.view(trace, "cuda"), t.lower(trace)
    assert isinstance(found, DeviceProgram)
    code = ptx(found, "sm_90a")
    products = re.findall(r"asm volatile\([^;]*;[^;]*; wgmma\.mma_async[^;]*;", text)
    assert len(products) and text.count("mbarrier_init(mbarriers_") == code.count("mbarrier.init")
    assert text.count("const __grid_constant__ CUtensorMap map") == len(found.kernels[0].maps) == 2
    assert re.search(r"if \(thread_ >= \d+\) \{ /\* producer \*/", text)
    # What a descriptor says besides the address is what LLVM gets: 128 bytes of swizzle, groups of 1024 bytes.
    assert {int(x, 16) >> 32 for x in re.findall(r"descriptor\(&[^;]*?, (0x[0-9a-f]+)ull\)", text)} == {0x40000040}
    assert len(set(re.findall(r"\{%r\d+, (0x[0-9a-f]+|\d+)\};", code)) & {"0x40000040", str(0x40000040)}) == 1
    assert b"for GPUs, sm_90a alone." in t.library(trace).make("header")


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_kernels_are_exact_on_small_integers(case: str, tmp_path: Path) -> None:
    text, decisions, reference = CASES[case]
    t = hopper(tmp_path, text)
    inputs, wide = whole_numbers(t.program)
    (name,) = (b.name for b in t.program.outputs)
    for program, found in drawn(t, {"warpgroups": True, **decisions}):
        code = ptx(found, "sm_90a")
        assert (".shared::cluster.global" in code and "cp.async.c" not in code) or not {
            "copied",
            "copied_1",
        } <= decisions.keys()
        octets = "f8e" in text
        widths = (COLUMNS[case],) if case in COLUMNS else (1, 2, 4)  # drawn, unless the case decides it
        assert any(f"m64n{64 * n}k{32 if octets else 16}" in code for n in widths) and ".local" not in code
        fault, outputs = emulated(found, program, inputs)
        assert fault == ""
        for out in outputs:
            np.testing.assert_array_equal(out[name], reference(*wide))
        if tool("ptxas") is not None:
            said = assemble(code, "sm_90a", tmp_path / "k.cubin")
            assert set(re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)) == {"0"}
            assert "C75" not in said  # it would say so if it had to wait behind each instruction
        if tool("ptxas") is not None and tool("nvdisasm") is not None:
            machine = sass_of(code, "sm_90a")
            opcode = r"QGMMA\.64x\d+x32\.F32" if octets else r"HGMMA\.64x\d+x16\.F32"
            assert len(re.findall(opcode, machine)) >= code.count("wgmma.mma_async")
            assert machine.count("UTMALDG") >= code.count(".shared::cluster.global")
            assert machine.count("UTMASTG") >= code.count(".global.shared::cta")
