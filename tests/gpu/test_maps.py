"""Tensor maps: what the driver is told of them, by the runtime and by the loader in C, and where a launch has them."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorc_dsl.backend.cuda.backend import BACKEND
from tensorc_dsl.backend.cuda.compiled import compile_device
from tensorc_dsl.backend.cuda.library import CudaLibrary
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.runtime import kernel as launches
from tensorc_dsl.backend.protocol import KernelFault
from tensorc_dsl.ir.arrays import stored_dtype
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.evaluate import shape_of
from tests.gpu import tma_stores
from tests.gpu.pretend import pretended
from tests.gpu.test_loader import DRIVER
from tests.gpu.test_tma import FEATURES, hand

TARGET = Target(cpu="sm_90a", features=",".join(FEATURES))

OF_A = (6, 2, [160, 16], [320], [32, 8], 2)
OF_B = (6, 2, [32, 160], [64], [32, 8], 2)
"""The maps of both factors: 16-bit floats, dimensions, sizes, bytes between rows, boxes, a swizzle of 64 bytes."""


class _Driver:
    """The part of the driver's library that makes maps: it writes down its calls."""

    def __init__(self, result: int) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._result = result
        p, i, u = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32
        self.cuTensorMapEncodeTiled = ctypes.CFUNCTYPE(i, p, i, u, p, p, p, p, p, i, i, i, i)(self._encode)

    def _encode(self, *given: Any) -> int:
        room, kind, rank, address, sizes, strides, box, steps, interleave, swizzle, _, fill = given
        wide = [
            np.ctypeslib.as_array((ctypes.c_uint64 * n).from_address(x))
            for x, n in ((sizes, rank), (strides, rank - 1))
        ]
        few = [np.ctypeslib.as_array((ctypes.c_uint32 * rank).from_address(x)) for x in (box, steps)]
        assert room % 64 == 0 and few[1].tolist() == [1] * rank and (interleave, fill) == (0, 0)
        self.calls.append((address, kind, rank, wide[0].tolist(), wide[1].tolist(), few[0].tolist(), swizzle))
        ctypes.memset(room, 64 + len(self.calls), 128)
        return self._result


def call(monkeypatch: pytest.MonkeyPatch, result: int, program: Program | None = None) -> tuple[_Driver, list[Any]]:
    """The maps that a call of the kernel makes, and its launches."""
    made = _Driver(result)
    monkeypatch.setattr(launches, "library", lambda: made)
    program = program or hand()
    with pretended() as fake:
        kernel = BACKEND.load(compile_device(lower_device(program, FEATURES), TARGET).code, program, 1)
        kernel(*(np.zeros(shape_of(b), stored_dtype(b.dtype)) for b in program.inputs))
        return made, [x for x in fake.CALLS if x[0] == "cuLaunchKernel"]


def test_a_launch_has_maps_before_its_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    made, launches = call(monkeypatch, 0)
    (launch,) = launches
    packed = launch[5]
    assert packed[:256] == b"A" * 128 + b"B" * 128
    a, b, _ = struct.unpack("QQQ", packed[256:])
    assert made.calls == [(a, *OF_A), (b, *OF_B)]


def test_a_map_of_what_is_stored_has_the_address_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    made, launches = call(monkeypatch, 0, tma_stores.hand(128, 41, 44))
    (launch,) = launches
    _, c = struct.unpack("QQ", launch[5][128:])
    assert made.calls == [(c, 7, 2, [44, 41], [176], [32, 8], 3)]


def test_a_driver_that_makes_no_map_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KernelFault, match="the GPU's driver makes no tensor map of tiles of 8 x 32: error 1"):
        call(monkeypatch, 1)


def test_numbers_of_rows_have_32_bits() -> None:
    with pytest.raises(KernelFault, match="an array with 2147483648 elements along a dimension"):
        launches.encoded(6, 2, 1024, (32, 2**31), (64,), (32, 8))


ENCODE = """
#include <stdint.h>
int cuTensorMapEncodeTiled(void *map, int kind, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides,
        const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int lines, int fill) {
    printf("map %d %llu %d %u", (int)((uintptr_t)map % 64), (unsigned long long)(uintptr_t)address, kind, rank);
    printf(" %d %d %u %u", (int)sizes[0], (int)sizes[1], (unsigned)strides[0], box[0]);
    printf(" %u %u %u %d %d %d %d\\n", box[1], steps[0], steps[1], interleave, swizzle, lines, fill);
    return RESULT;
}
"""

MAIN = """
#include "t.h"
#include <stdio.h>
int main(void) {
    t_module m = {0, {0}};
    printf("%d\\n", t(&m, 0, ADDRESSES));
    return 0;
}
"""


def loaded(program: Program, addresses: str, result: int, folder: Path) -> list[str]:
    """What the driver and a call of the loader in C write, where the driver's answer to each map and launch is `result`."""
    library = CudaLibrary(compile_device(lower_device(program, FEATURES), TARGET), "t", "by hand")
    for name, text in (
        ("t.h", library.make("header").decode()),
        ("t.c", library.make("loader").decode()),
        ("driver.c", (DRIVER + ENCODE).replace("COUNT", "0").replace("RESULT", str(result))),
        ("main.c", MAIN.replace("ADDRESSES", addresses)),
    ):
        (folder / name).write_text(text)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
    subprocess.run(["cc", *flags, "-o", "main", "t.c", "driver.c", "main.c"], cwd=folder, check=True, timeout=120)
    done = subprocess.run(["./main"], cwd=folder, check=True, capture_output=True, text=True, timeout=120)
    return done.stdout.splitlines()


@pytest.mark.parametrize("result", [0, 1])
def test_the_loader_makes_the_same_maps(result: int, tmp_path: Path) -> None:
    said = loaded(hand(), "1024, 2048, 4096", result, tmp_path)
    assert said[0] == "map 0 1024 6 2 160 16 320 32 8 1 1 0 2 2 0"
    if result:
        assert said[1:] == ["1"]
    else:
        assert said[1] == "map 0 2048 6 2 32 160 64 32 8 1 1 0 2 2 0"
        assert [said[2].split()[2:8], said[3]] == [["1", "1", "1", "64", "1", "1"], "0"]


@pytest.mark.parametrize("result", [0, 1])
def test_the_loader_makes_the_map_of_what_is_stored(result: int, tmp_path: Path) -> None:
    """Of the result alone, at its address, with the arguments that the runtime gives."""
    said = loaded(tma_stores.hand(128, 41, 44), "1024, 2048", result, tmp_path)
    assert said[0] == "map 0 2048 7 2 44 41 176 32 8 1 1 0 3 2 0"
    if result:
        assert said[1:] == ["1"]
    else:
        assert [said[1].split()[2:8], said[2]] == [["3", "1", "1", "64", "1", "1"], "0"]
