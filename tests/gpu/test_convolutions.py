"""Convolutions on tensor cores: joined to products for instructions of warpgroups, and with padding for those of a warp.

`make gpu DRAWS=20` draws more schedules of each case.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl as td
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import assemble, sass_of, tool
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.schedule.trace.distribution import Decision
from tests.gpu.kernels import ptx
from tests.gpu.tensor_cores import whole_numbers
from tests.gpu.test_hopper import drawn


def convolved(x: Array, f: Array, *, pad: int = 0, stride: int = 1, dilation: int = 1) -> Array:
    """A convolution in as many dimensions as the weight has windows, channels last: tap by tap."""
    taps = f.shape[:-2]
    x = np.pad(x, ((0, 0), *((pad, pad) for _ in taps), (0, 0)))
    sizes = [(n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[1:-1], taps, strict=True)]
    out = np.zeros((x.shape[0], *sizes, f.shape[-1]))
    for tap in np.ndindex(*taps):
        cut = tuple(
            slice(t * dilation, t * dilation + (n - 1) * stride + 1, stride) for t, n in zip(tap, sizes, strict=True)
        )
        out += x[(slice(None), *cut)] @ f[tap]
    return out


TMA: dict[str, Decision] = {"copied": "tma", "copied_1": "tma"}

CASES: dict[str, tuple[str, str, dict[str, int], dict[str, Decision]]] = {
    "a window of an image": (
        "conv2d_nhwc(N=1, H=9, W=8, CI=64, KH=3, KW=3, CO=64",
        "f16",
        {"pad": 1},
        {"window": 3, "filled": True, **TMA},
    ),
    "a window, by roles": (
        "conv2d_nhwc(N=1, H=5, W=14, CI=64, KH=3, KW=3, CO=64",
        "f16",
        {"pad": 1},
        {"window": 2, "filled": True, "filled_1": True, **TMA, "beside": True, "ahead": 2},
    ),
    "a window of two images": (
        "conv1d_nlc(N=2, L=33, CI=64, KL=3, CO=64",
        "bf16",
        {"pad": 1},
        {"window": 1, "filled": True},
    ),
    "a line of an image": (
        "conv1d_nlc(N=1, L=61, CI=128, KL=3, CO=64",
        "f16",
        {"pad": 1},
        {"window": 0, "filled": True},
    ),
    "a volume": (
        "conv3d_ndhwc(N=1, D=3, H=6, W=8, CI=64, KD=3, KH=1, KW=3, CO=64",
        "f16",
        {"pad": 1},
        {"window": 3, "filled": True},
    ),
    "odd, with a stride": ("conv2d_nhwc(N=1, H=15, W=17, CI=3, KH=5, KW=5, CO=40", "f16", {"pad": 2, "stride": 2}, {}),
    "dilated": ("conv2d_nhwc(N=2, H=7, W=7, CI=24, KH=3, KW=3, CO=16", "bf16", {"pad": 2, "dilation": 2}, {}),
    "one tap": ("conv2d_nhwc(N=2, H=7, W=7, CI=64, KH=1, KW=1, CO=64", "f16", {}, {"joined": True}),
    "one tap, with a stride": ("conv2d_nhwc(N=2, H=9, W=7, CI=64, KH=1, KW=1, CO=64", "f16", {"stride": 2}, {}),
    "one tap of a row": ("conv2d_nhwc(N=2, H=3, W=70, CI=64, KH=1, KW=1, CO=64", "f16", {}, {"joined": False}),
}


def task(folder: Path, text: str, space: str, target: str) -> Task:
    path = folder / "t.tsched"
    operators = "conv1d_nlc, conv2d_nhwc, conv3d_ndhwc"
    uses = f"use std.ops.{{{operators}}}\nuse std.gpu.{space}.{{{space}}}\nuse std.gpu.targets.{{{target}}}\n"
    path.write_text(f"{uses}task t = {text} with {space}\n")
    return td.load(path)["t"]


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_warpgroups_are_exact_on_small_integers(case: str, tmp_path: Path) -> None:
    text, dtype, attributes, decisions = CASES[case]
    given = "".join(f", {name}={value}" for name, value in attributes.items())
    t = task(tmp_path, f"{text}{given}, T={dtype}, Acc=f32)", "hopper", "sm_90a")
    inputs, (x, f) = whole_numbers(t.program)
    for program, found in drawn(t, {"warpgroups": True, **decisions}):
        code = ptx(found, "sm_90a")
        assert "wgmma.mma_async" in code
        if "copied" in decisions:
            assert f".tensor.{len(x.shape)}d." in code and "cp.async.c" not in code
        fault, outputs = emulated(found, program, inputs)
        assert fault == ""
        for out in outputs:
            np.testing.assert_array_equal(out["Y"], convolved(x, f, **attributes))
        if tool("ptxas") is not None:
            assert "spill stores" not in re.sub(
                r"\b0 bytes spill stores", "", assemble(code, "sm_90a", tmp_path / "k.cubin")
            )
        if tool("ptxas") is not None and tool("nvdisasm") is not None:
            machine = sass_of(code, "sm_90a")
            assert machine.count("HGMMA") >= code.count("wgmma.mma_async")
            assert machine.count("UTMALDG") >= code.count(".shared::cluster.global")
