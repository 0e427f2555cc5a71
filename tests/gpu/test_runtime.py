"""Kernels through PyCUDA, whose stand-in has memory of the CPU: packing, launches, arrays of other libraries, errors.

No test runs on a GPU: what is written down is what the driver would be told.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensorc_dsl as td
from tensorc_dsl.api.tasks import Task
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.runtime import capsule, driver, streams
from tensorc_dsl.backend.cuda.runtime.arrays import DeviceArray
from tensorc_dsl.backend.cuda.runtime.image import unpack
from tensorc_dsl.backend.protocol import KernelFault
from tensorc_dsl.diagnostic import TschedError, render
from tensorc_dsl.ir.dtypes import BF16, F32
from tensorc_dsl.measure.outcome import Status
from tensorc_dsl.trace.trace import Trace
from tests.gpu.pretend import pretended, without_pycuda

HEAD = "use std.ops\nuse std.gpu.default.{default}\nuse std.gpu.targets.{sm_80}\n"
PRODUCT = "matmul(M=32, N=16, K=8)"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("FAKE_PRODUCT", "32,16,8")
    with pretended() as fake:
        yield fake


@cache
def task_of(text: str, target: str | None = "native-cuda", mcpu: str | None = None) -> Task:
    return td.loads(f"{HEAD}task t = {text} with default", target=target, mcpu=mcpu)["t"]


@cache
def trace_of(text: str, seed: int) -> Trace:
    return task_of(text).sample(seed)


def kernel_of(text: str, seed: int = 0) -> td.Kernel:
    return task_of(text).replay(trace_of(text, seed))


def operands() -> tuple[np.ndarray, np.ndarray]:
    a = np.arange(256, dtype=np.float32).reshape(32, 8) % 5
    return a, np.arange(128, dtype=np.float32).reshape(8, 16) % 3


def calls(gpu: Any, name: str) -> list[tuple[Any, ...]]:
    return [c[1:] for c in gpu.CALLS if c[0] == name]


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
            error = "libcuda.so.1: cannot open shared object file: No such file or directory"
            (package / "driver.py").write_text(f"raise ImportError({error!r})")
            context = without_pycuda()
    with context:
        if said == "no driver":
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
    assert all(max(n, 16) in allocated for n in sizes)


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


# --- arrays ----------------------------------------------------------------------------------------------------------


class Exporter:
    """An array of another library on the GPU, which speaks one of the two protocols."""

    def __init__(self, array: DeviceArray, dlpack: bool, **changes: Any) -> None:
        self.asked: list[Any] = []
        self.kept = array
        if dlpack:
            self.__dlpack_device__ = array.__dlpack_device__
            self.__dlpack__ = lambda stream: self.asked.append(stream) or array.__dlpack__(stream=stream)
        else:
            self.__cuda_array_interface__ = array.__cuda_array_interface__ | changes


def on_gpu(a: np.ndarray) -> DeviceArray:
    device = driver.find()
    assert isinstance(device, driver.Device)
    out = DeviceArray(device, a.shape, F32)
    out.fill(a)
    return out


@pytest.mark.parametrize("dlpack", [False, True])
def test_arrays_on_the_gpu_stay_there(gpu: Any, dlpack: bool) -> None:
    kernel = kernel_of(PRODUCT)
    a, b = operands()
    theirs = [Exporter(on_gpu(x), dlpack) for x in (a, b)]
    del gpu.CALLS[:]
    c = kernel(*theirs)
    assert isinstance(c, DeviceArray)
    assert not calls(gpu, "cuMemcpyHtoD")
    assert not calls(gpu, "cuCtxSynchronize"), "a call does not wait"
    np.testing.assert_array_equal(c.numpy(), a @ b)
    if dlpack:
        assert theirs[0].asked == [1]
    given = on_gpu(np.zeros((32, 16), np.float32))
    assert kernel(*theirs, given) is given
    np.testing.assert_array_equal(given.numpy(), a @ b)


def test_arrays_here_and_there_may_be_mixed(gpu: Any) -> None:
    kernel = kernel_of(PRODUCT)
    a, b = operands()
    np.testing.assert_array_equal(kernel(on_gpu(a), b).numpy(), a @ b)
    c = np.zeros((32, 16), np.float32)
    assert kernel(a, on_gpu(b), c) is c
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"typestr": "<f8"}, "A: expected float32"),
        ({"shape": (8, 32)}, r"A: dimension 0 is 8|A: expected shape \(32, 8\), got \(8, 32\)"),
        ({"strides": (64, 8)}, "A: the array is not C-contiguous"),
        ({"mask": object()}, "know no masks"),
    ],
)
def test_what_does_not_fit_is_refused(gpu: Any, changes: dict[str, Any], why: str) -> None:
    kernel = kernel_of(PRODUCT)
    a, b = map(on_gpu, operands())
    with pytest.raises(ValueError, match=why):
        kernel(Exporter(a, False, **changes), b)


def test_memory_that_is_not_aligned_or_shared_is_refused(gpu: Any) -> None:
    kernel = kernel_of(PRODUCT)
    a, b = map(on_gpu, operands())
    with pytest.raises(ValueError, match="A: the data is not aligned to 16 bytes"):
        kernel(Exporter(a, False, data=(a.address + 4, False)), b)
    c = on_gpu(np.zeros((32, 16), np.float32))
    with pytest.raises(ValueError, match="C: the array is read-only"):
        kernel(a, b, Exporter(c, False, data=(c.address, True)))
    with pytest.raises(ValueError, match="share memory"):
        kernel(Exporter(c, False, shape=(32, 8)), b, c)


def test_a_capsule_is_what_numpy_reads() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    owner = SimpleNamespace()

    class OnCpu:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **_: Any) -> Any:
            tensor = capsule.Tensor(a.ctypes.data, a.shape, None, (2, 32))
            return capsule.capsule_of(tensor, owner, device=1)

    before = sys.getrefcount(owner)
    read = np.from_dlpack(OnCpu())  # type: ignore[arg-type]
    np.testing.assert_array_equal(read, a)
    assert sys.getrefcount(owner) == before + 1
    del read
    assert sys.getrefcount(owner) == before, "the consumer deletes it"
    OnCpu().__dlpack__()
    assert sys.getrefcount(owner) == before, "a capsule that nobody takes deletes it"


def test_bf16_has_a_type_in_dlpack_alone(gpu: Any) -> None:
    device = driver.find()
    assert isinstance(device, driver.Device)
    a = DeviceArray(device, (2, 4), BF16)
    assert capsule.tensor_in(a.__dlpack__()).element == (4, 16)
    assert a.__cuda_array_interface__["typestr"] == "<u2"


# --- streams ---------------------------------------------------------------------------------------------------------


class Tensor(Exporter):
    """An array of torch."""

    device = "cuda:0"


Tensor.__module__ = "torch"


def torch_on(stream: int, made: list[Any]) -> ModuleType:
    library = ModuleType("torch")
    library.cuda = SimpleNamespace(current_stream=lambda _: SimpleNamespace(cuda_stream=stream))  # type: ignore[attr-defined]
    library.from_dlpack = lambda a: made.append(a) or ("tensor", a)  # type: ignore[attr-defined]
    return library


def test_kernels_run_in_the_order_of_torchs_stream(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(PRODUCT)
    a, b = operands()
    made: list[Any] = []
    events: list[tuple[Any, ...]] = []

    class Driver:
        def cuEventCreate(self, event: Any, flags: int) -> int:  # noqa: N802 (the driver's name)
            return 0

        def cuEventRecord(self, event: Any, stream: Any) -> int:  # noqa: N802
            events.append(("record", stream.value))
            return 0

        def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> int:  # noqa: N802
            events.append(("wait", stream.value, len(calls(gpu, "cuLaunchKernel"))))
            return 0

        def cuEventDestroy_v2(self, event: Any) -> int:  # noqa: N802
            return 0

    monkeypatch.setattr(streams, "library", Driver)
    monkeypatch.setitem(sys.modules, "torch", torch_on(77, made))
    theirs = [Tensor(on_gpu(x), True) for x in (a, b)]
    kind, c = kernel(*theirs)
    assert kind == "tensor"
    assert made == [c]
    assert theirs[0].asked == [77]
    ours = 4096
    assert calls(gpu, "cuLaunchKernel")[0][3] == ours
    assert events == [("record", 77), ("wait", ours, 0), ("record", ours), ("wait", 77, 1)]
    np.testing.assert_array_equal(c.numpy(), a @ b)


def test_the_legacy_stream_needs_no_events(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_on(0, []))
    a, b = (Tensor(on_gpu(x), True) for x in operands())
    kernel_of(PRODUCT)(a, b)
    assert calls(gpu, "cuLaunchKernel")[0][3] == 0
    assert not calls(gpu, "cuStreamCreate")


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
