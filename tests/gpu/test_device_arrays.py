"""Arrays on the GPU and of other libraries, and the streams in which kernels run on them. The GPU is that of `fake/`."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tensorc_dsl.backend.cuda.runtime import arrays, driver
from tensorc_dsl.backend.cuda.runtime import driver as streams
from tensorc_dsl.backend.cuda.runtime.arrays import DeviceArray
from tensorc_dsl.ir.dtypes import BF16, F8E4M3, F8E5M2, F32
from tests.gpu.products import PRODUCT, calls, kernel_of, operands

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
            tensor = arrays.Tensor(a.ctypes.data, a.shape, None, (2, 32))
            return arrays.capsule_of(tensor, owner, device=1)

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
    assert arrays.tensor_in(a.__dlpack__()).element == (4, 16)
    assert a.__cuda_array_interface__["typestr"] == "<u2"
    for t, code in ((F8E4M3, 10), (F8E5M2, 12)):
        a = DeviceArray(device, (2, 4), t)
        assert arrays.tensor_in(a.__dlpack__()).element == (code, 8)
        assert a.__cuda_array_interface__["typestr"] == "|u1"


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
