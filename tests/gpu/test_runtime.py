"""Kernels through PyCUDA, whose stand-in has memory of the CPU: the device, launches, errors.

No test runs on a GPU: what is written down is what the driver would be told.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorc_dsl as td
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.runtime.kernel import unpack
from tensorc_dsl.backend.protocol import KernelFault
from tensorc_dsl.base.diagnostic import TschedError, render
from tensorc_dsl.tuning.measure.outcome import Status
from tests.gpu.pretend import pretended, without_pycuda
from tests.gpu.products import HEAD, PRODUCT, calls, kernel_of, operands, task_of, trace_of

# --- the device ------------------------------------------------------------------------------------------------------


def test_the_gpu_of_the_machine_is_a_target(gpu: Any) -> None:
    target = task_of(PRODUCT).target
    assert (target.kind, target.cpu, target.cores, target.threads) == ("cuda", "sm_90a", 132, 1024)
    assert (target.shared_memory, target.registers, target.l2) == (232448, 65536, 4 << 20)
    assert {"sm_80", "sm_90", "sm_90a"} <= set(target.feature_names)
    assert target.device == ("Fake H200, 1980 MHz, memory of 143360 MiB at 3201 MHz, 6144 bits wide, driver 12.8")
    assert target.key == "cuda:sm_90a:128:132:Fake H200"


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("no pycuda", "PyCUDA is not installed"),
        ("no driver", "NVIDIA's driver is not there (libcuda.so.1: cannot open shared object file"),
        ("no curand", "PyCUDA cannot be loaded (libcurand.so.10: cannot open shared object file"),
        ("no device", "the driver shows no GPU (cuInit failed: no CUDA-capable device is detected)"),
    ],
)
def test_what_is_missing_is_named(said: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = f"{HEAD}task t = {PRODUCT} with default"
    match said:
        case "no pycuda":
            context = without_pycuda()
        case "no device":
            monkeypatch.setenv("FAKE_NO_GPU", "1")
            context = pretended()
        case _:
            package = tmp_path / "pycuda"
            package.mkdir()
            (package / "__init__.py").touch()
            library = {"no driver": "libcuda.so.1", "no curand": "libcurand.so.10"}[said]
            error = f"{library}: cannot open shared object file: No such file or directory"
            (package / "driver.py").write_text(f"raise ImportError({error!r})")
            context = without_pycuda()
    with context:
        if said in ("no driver", "no curand"):
            del sys.modules["pycuda"]
            monkeypatch.syspath_prepend(tmp_path)
        for target in (None, "native-cuda"):
            with pytest.raises(TschedError) as raised:
                td.loads(task, target=target)["t"].best()
            (found,) = raised.value.diagnostics
            assert found.code == "E0918"
            assert what in found.message
            assert all(word in render(found) for word in ("--emulate", "--stage ptx", "compile"))


def test_a_described_gpu_is_not_this_one(gpu: Any) -> None:
    with pytest.raises(TschedError, match=r"E0922.*`sm_80`, a GPU that is only described.*has Fake H200"):
        task_of(PRODUCT, target=None).best()


def test_code_for_a_newer_gpu_does_not_run_here(gpu: Any) -> None:
    newer, older = (task_of(PRODUCT, mcpu=cpu) for cpu in ("sm_100", "sm_80"))
    with pytest.raises(TschedError, match=r"E0922.*`sm_100`"):
        newer.require_machine()
    older.require_machine()


# --- launches --------------------------------------------------------------------------------------------------------


def test_a_launch_has_the_grid_the_memory_and_the_addresses(gpu: Any) -> None:
    kernel = kernel_of(PRODUCT)
    (device,) = lower_device(kernel.trace.program).kernels
    a, b = operands()
    np.testing.assert_array_equal(kernel(a, b), a @ b)
    ((name, grid, block, stream, packed, shared),) = calls(gpu, "cuLaunchKernel")
    assert (name, block, stream, shared) == (device.name, (device.threads, 1, 1), 0, device.shared_bytes)
    assert [str(n) for n in grid] == [str(e.value) for e in device.grid]  # type: ignore[union-attr]
    assert len(packed) == 24
    assert all(address % 256 == 0 for address in struct.unpack("PPP", packed))
    assert calls(gpu, "cuFuncSetAttribute") == [(device.name, 8, device.shared_bytes)]
    assert b".target sm_90a" in calls(gpu, "cuModuleLoadDataEx")[0][0]


def test_open_sizes_come_after_the_addresses(gpu: Any) -> None:
    kernel = kernel_of("matmul(M=1..64, N=33, K=16)")
    (device,) = lower_device(kernel.trace.program).kernels
    for rows in (20, 64):
        kernel(np.zeros((rows, 16), np.float32), np.zeros((16, 33), np.float32))
        _, grid, *_, packed, _ = calls(gpu, "cuLaunchKernel")[-1]
        assert struct.unpack("PPPq", packed)[3] == rows
        assert grid[0] >= 1
    assert device.params == ("A", "B", "C")
    with pytest.raises(ValueError, match="M is 65; this kernel takes 1 to 64"):
        kernel(np.zeros((65, 16), np.float32), np.zeros((16, 33), np.float32))


def test_more_blocks_than_a_grid_has_are_not_launched(gpu: Any) -> None:
    text = """
compute doubled(X: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = 2 * X[i, j] }
schedule rows for doubled { let [i, j] = Y.loops; bind(i, "block.y"); bind(j, "thread.x") }
task t = doubled(M=1..100000, N=4) with rows
"""
    t = td.loads(text, target="native-cuda")["t"]
    kernel = t.replay(t.sample(0))
    kernel(np.zeros((65535, 4), np.float32))
    before = len(calls(gpu, "cuLaunchKernel"))
    with pytest.raises(ValueError, match=r"a grid has 65536 blocks along `block\.y`, and up to 65535 are there"):
        kernel(np.zeros((65536, 4), np.float32))
    assert len(calls(gpu, "cuLaunchKernel")) == before == 1


def test_intermediate_arrays_have_memory_of_their_size(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAKE_PRODUCT")
    kernel = kernel_of("softmax(M=3, N=64)")
    program = lower_device(kernel.trace.program)
    assert program.scratch
    kernel(np.zeros((3, 64), np.float32))
    launches = calls(gpu, "cuLaunchKernel")
    assert [x[0] for x in launches] == [k.name for k in program.kernels]
    sizes = [x.size.value * x.dtype.bytes for x in program.scratch]  # type: ignore[union-attr]
    allocated = [n for (n,) in calls(gpu, "cuMemAlloc")]
    assert all(any(n <= m <= 2 * max(n, 16) for m in allocated) for n in sizes)


def test_a_module_is_loaded_once_for_its_text(gpu: Any) -> None:
    kernels = [kernel_of(PRODUCT, seed) for seed in (0, 0, 1)]
    assert len(calls(gpu, "cuModuleLoadDataEx")) == len({k.trace.text for k in kernels}) == 2


def test_an_image_says_what_lowering_said() -> None:
    task = task_of("matmul(M=1..64, N=33, K=16)", target=None)
    trace = task.sample(0)
    image, extents = unpack(task.compile(trace).code.object_code)
    program = lower_device(trace.program)
    assert [x.name for x in image.launches] == [k.name for k in program.kernels]
    grids, scratch = extents.bound({"M": 50})
    assert len(grids) == len(program.kernels)
    assert len(scratch) == len(program.scratch)


def test_times_are_those_of_events_behind_a_flush(gpu: Any) -> None:
    kernel = kernel_of(PRODUCT)
    a, b = operands()
    c = np.full((32, 16), np.nan, np.float32)
    times = kernel._native.time([a, b, c], 3)
    assert len(times) == 3
    assert all(1e-6 < t < 1e-3 for t in times)
    np.testing.assert_array_equal(c, a @ b)
    order = [x[0] for x in gpu.CALLS if x[0] in ("cuMemsetD8Async", "cuEventRecord", "cuLaunchKernel")]
    assert order == ["cuMemsetD8Async", "cuEventRecord", "cuLaunchKernel", "cuEventRecord"] * 3
    assert calls(gpu, "cuMemsetD8Async")[0] == (0, 8 << 20)


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "lost"),
    [
        ("cuLaunchKernel: too many resources requested for launch", False),
        ("cuMemAlloc: out of memory", False),
        ("cuMemcpyDtoH: an illegal memory access was encountered", True),
        ("cuLaunchKernel: unspecified launch failure", True),
    ],
)
def test_an_error_of_the_driver_is_a_fault_of_the_kernel(
    gpu: Any, fault: str, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernel_of(PRODUCT)
    monkeypatch.setenv("FAKE_FAULT", fault)
    with pytest.raises(KernelFault, match=fault.partition(": ")[2]) as raised:
        kernel(*operands())
    assert raised.value.lost is lost
    assert not gpu.CURRENT, "the context of the caller is current again"


def test_code_that_the_driver_refuses_does_not_compile(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULT", "cuModuleLoadDataEx: a PTX JIT compilation failed")
    with pytest.raises(TschedError, match=r"E0908.*a PTX JIT compilation failed"):
        kernel_of(PRODUCT)


def test_candidates_are_measured_in_a_process_that_a_fault_ends(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A right one has a time; one that breaks the GPU has crashed, and the next process measures the next one."""
    task, trace = task_of(PRODUCT), trace_of(PRODUCT, 0)
    right = task.measure(trace)
    assert right.status is Status.OK, right.message
    assert right.times
    for fault, said in (
        ("cuMemcpyDtoH: an illegal memory access was encountered", "an illegal memory access"),
        ("cuLaunchKernel: too many resources requested for launch", "too many resources"),
    ):
        monkeypatch.setenv("FAKE_FAULT", fault)
        outcome = task.measure(trace)
        assert outcome.status is Status.CRASH
        assert said in outcome.message
    monkeypatch.delenv("FAKE_FAULT")
    monkeypatch.setenv("FAKE_PRODUCT", "16,16,8")
    assert task.measure(trace).status is Status.WRONG_RESULT
