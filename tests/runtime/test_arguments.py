"""The arguments of kernels: arrays are read from memory, whatever their class claims; unreadable ones are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

from tensorc_dsl.backend.llvm.runtime.kernel import NativeKernel, load
from tensorc_dsl.ir.arrays import Array
from tests.codegen.native import compiled, program
from tests.runtime.dlpack import BFLOAT, CUDA, FLOAT, READ_ONLY, UINT, Exporter

N = 6

COPY = """
program copied(X: TYPE[6], Y: TYPE[6]) {
    for i in 6 {
        block Y { spatial vi in 6 = i; Y[vi] = X[vi] }
    }
}
"""

OPEN = """
program opened(X: f32[N], Y: f32[N]) where N in 1..4096 {
    for i in N {
        block Y { spatial vi in N = i; Y[vi] = X[vi] }
    }
}
"""

KEPT = COPY.replace("X: TYPE", "X: const TYPE")


def kernel_of(text: str, dtype: str = "f32") -> NativeKernel:
    return load(compiled(program(text.replace("TYPE", dtype))))


@pytest.fixture(scope="module")
def kernel() -> NativeKernel:
    return kernel_of(COPY)


@pytest.fixture(scope="module")
def opened() -> NativeKernel:
    return kernel_of(OPEN)


def values() -> Array:
    return np.arange(1, N + 1, dtype=np.float32)


# --- Subclasses of NumPy's arrays that say something else than what is there -------------------------------------------


class Liar(np.ndarray[Any, Any]):
    """Says what `lies` say in every way Python can ask."""

    lies: ClassVar[Any] = {}

    def __getattribute__(self, name: str) -> Any:
        lies = type(self).lies
        return lies[name] if name in lies else super().__getattribute__(name)

    def __array_finalize__(self, obj: object) -> None:
        if type(self).lies:
            raise AssertionError("made another one of these")

    def _called(self, *_: object, **__: object) -> Any:
        raise AssertionError("was asked")

    __array__ = __array_ufunc__ = __array_function__ = __dlpack__ = __dlpack_device__ = view = __len__ = _called  # type: ignore[assignment]


HUGE = {
    "shape": (6_000_000,), "size": 6_000_000, "nbytes": 24_000_000, "ndim": 1, "strides": (4,), "itemsize": 4,
    "dtype": np.dtype(np.float32), "__array_interface__": {}, "ctypes": None, "flags": None, "base": None, "data": b"",
    "__array_struct__": None, "T": None,
}  # fmt: skip


def lying(true: Array, **lies: Any) -> Any:
    """An array that says what `lies` say, and otherwise that it is huge."""
    kind: Any = type("Lying", (Liar,), {})
    made = true.view(kind)
    kind.lies = HUGE | lies
    return made


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("size", [2, 5, 7])
def test_a_shape_that_is_a_lie_is_not_believed(kernel: NativeKernel, place: int, size: int) -> None:
    arrays: list[Any] = [values(), values()]
    arrays[place] = lying(np.zeros(size, np.float32), shape=(N,))
    with pytest.raises(ValueError, match=rf"expected shape \(6,\), got \({size},\)"):
        kernel(*arrays)


def test_an_open_size_is_that_of_the_memory(opened: NativeKernel) -> None:
    true = np.array([3, 4], np.float32)
    np.testing.assert_array_equal(opened(lying(true, shape=(4000,))), true)
    with pytest.raises(ValueError, match="dimension 0 is 2, expected N"):
        opened(np.zeros(4000, np.float32), lying(true, shape=(4000,)))


@pytest.mark.parametrize(
    ("true", "message"),
    [
        (np.zeros(N, np.float64), "expected float32"),
        (np.zeros(N, np.int8), "expected float32"),
        (np.zeros(2 * N, np.float32)[::2], "not C-contiguous"),
        (np.zeros((N, 1), np.float32), "expected shape"),
        (np.zeros(4 * N + 1, np.uint8)[1:].view(np.float32), "not aligned"),
    ],
)
def test_nothing_else_that_an_array_says_is_believed(kernel: NativeKernel, true: Array, message: str) -> None:
    said = lying(true, shape=(N,), flags=values().flags)
    for name in ("shape", "ndim", "strides", "dtype", "flags"):
        assert getattr(said, name) == getattr(values(), name)
    with pytest.raises(ValueError, match=message):
        kernel(said)


def test_a_read_only_array_that_says_otherwise(kernel: NativeKernel) -> None:
    locked = values()
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kernel(values(), lying(locked, flags=values().flags))


def test_an_honest_subclass_is_taken_and_given_back(kernel: NativeKernel, opened: NativeKernel, tmp_path: Path) -> None:
    out = lying(np.zeros(N, np.float32))
    assert kernel(lying(values()), out) is out
    np.testing.assert_array_equal(np.ndarray.view(out, np.ndarray), values())
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(N,))
    mapped[:] = values()
    for k in (kernel, opened):
        made = k(mapped)
        assert type(made) is np.ndarray
        np.testing.assert_array_equal(made, values())
    mapped[:] = 0
    assert kernel(values(), mapped) is mapped
    np.testing.assert_array_equal(np.fromfile(tmp_path / "x", np.float32), values())
    with pytest.raises(ValueError, match="read-only"):
        kernel(values(), np.memmap(tmp_path / "x", np.float32, "r", shape=(N,)))


def test_constants_are_what_they_are() -> None:
    k = kernel_of(KEPT)
    np.testing.assert_array_equal(k.bind(X=lying(values()))(), values())
    with pytest.raises(ValueError, match="dimension 0 is 2, expected 6"):
        k.bind(X=lying(np.zeros(2, np.float32), shape=(N,)))
    with pytest.raises(ValueError, match="kernels know no masks"):
        k.bind(X=np.ma.masked_equal(values(), 3))


def test_times_are_of_what_is_there(kernel: NativeKernel) -> None:
    with pytest.raises(ValueError, match="expected shape"):
        kernel.time((lying(np.zeros(2, np.float32), shape=(N,)), values()), 1)


class Posing:
    """No array at all, whatever `isinstance` is told."""

    __class__ = np.ndarray  # type: ignore[assignment]
    shape = (N,)
    dtype = np.dtype(np.float32)


def test_what_only_poses_as_an_array_is_none(kernel: NativeKernel) -> None:
    assert isinstance(Posing(), np.ndarray)
    for x in (Posing(), values().data, values().data.tobytes(), np.float32(1), None, np.ndarray, object()):
        with pytest.raises(ValueError, match=r"^X: (expected an array|.*by DLPack)"):
            kernel(x)


# --- Masks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "masked",
    [
        np.ma.masked_equal(values(), 3),
        np.ma.masked_array(values()),
        np.ma.masked_equal(values(), 3).view(type("Own", (np.ma.MaskedArray,), {})),
    ],
)
def test_a_mask_is_never_dropped(kernel: NativeKernel, masked: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^X: kernels know no masks; pass `\.filled\(value\)` of the array, or `\.data`"
    ):
        kernel(masked)
    with pytest.raises(ValueError, match=r"^Y: kernels know no masks"):
        kernel(values(), masked)
    np.testing.assert_array_equal(kernel(masked.filled(9)), masked.filled(9))
    np.testing.assert_array_equal(kernel(masked.data), values())


# --- DLPack ------------------------------------------------------------------------------------------------------------


def test_dlpack_is_read_as_it_says(kernel: NativeKernel) -> None:
    memory = np.arange(20, dtype=np.float32)
    for x, want in (
        (Exporter(memory, shape=(N,)), memory[:N]),
        (Exporter(memory, shape=(N,), strides=(1,)), memory[:N]),
        (Exporter(memory, shape=(N,), byte_offset=8), memory[2 : N + 2]),
        (Exporter(memory, shape=(N,), versioned=False), memory[:N]),
        (Exporter(memory, shape=(N,), flags=READ_ONLY), memory[:N]),
    ):
        np.testing.assert_array_equal(kernel(x), want)
    out = Exporter(memory, shape=(N,))
    assert kernel(values(), out) is out
    np.testing.assert_array_equal(memory[:N], values())


MEMORY = np.zeros(20, np.float32)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"device": CUDA}, r"it is on a CUDA device; kernels run on the CPU"),
        ({"device": 99}, r"it is on device type 99; kernels run on the CPU"),
        ({"major": 2}, "major version"),
        ({"codes": (FLOAT, 32, 4)}, "lanes"),
        ({"codes": (FLOAT, 32, 0)}, "lanes"),
        ({"codes": (FLOAT, 31, 1)}, "dtype"),
        ({"codes": (BFLOAT, 16, 1)}, "dtype"),
        ({"codes": (77, 32, 1)}, "dtype"),
        ({"codes": (FLOAT, 64, 1), "shape": (N,)}, r"expected float32 \(f32\), got float64"),
        ({"codes": (UINT, 32, 1)}, r"expected float32 \(f32\), got uint32"),
        ({"strides": (2,)}, "not C-contiguous"),
        ({"strides": (-1,)}, "not C-contiguous"),
        ({"strides": (0,)}, "not C-contiguous"),
        ({"strides": (1 << 61,)}, "not C-contiguous"),
        ({"byte_offset": 2}, "not aligned"),
        ({"shape": (-N,)}, "negative dimensions"),
        ({"shape": (1 << 40, 1 << 40)}, "too big"),
        ({"shape": (1,) * 100}, "maxdims|dimensions"),
        ({"shape": (N + 1,)}, r"expected shape \(6,\), got \(7,\)"),
        ({"name": b"used_dltensor_versioned"}, "used up|incorrect name"),
        ({"null": True}, "has no memory"),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_faults_of_dlpack(kernel: NativeKernel, fault: dict[str, Any], message: str, place: int) -> None:
    arrays: list[Any] = [values(), values()]
    told: dict[str, Any] = {"shape": (N,)} | fault
    arrays[place] = Exporter(MEMORY, **told)
    with pytest.raises(ValueError, match=f"^{'XY'[place]}: .*(?:{message})"):
        kernel(*arrays)


def test_a_capsule_is_consumed_once(kernel: NativeKernel) -> None:
    x = Exporter(MEMORY, shape=(N,))
    kernel(x)
    with pytest.raises(ValueError, match=r"^X: "):
        kernel(x)


def test_exports_that_cannot_be_written(kernel: NativeKernel) -> None:
    with pytest.raises(ValueError, match=r"^Y: the array is read-only"):
        kernel(values(), Exporter(MEMORY, shape=(N,), flags=READ_ONLY))
    with pytest.raises(ValueError, match=r"^Y: the array is read-only"):
        kernel(values(), Exporter(MEMORY, shape=(N,), versioned=False))


def raising(e: BaseException) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> Any:
        raise e

    return call


@pytest.mark.parametrize(
    "members",
    [
        {"__dlpack__": raising(RuntimeError("no export"))},
        {"__dlpack__": raising(BufferError("no export"))},
        {"__dlpack__": raising(TypeError("no export"))},
        {"__dlpack__": property(raising(RuntimeError("no export")))},
        {"__dlpack__": lambda *_, **__: None},
        {"__dlpack__": lambda *_, **__: object()},
        {"__dlpack__": 3},
        {"__dlpack__": raising(RuntimeError("no export")), "__dlpack_device__": raising(RuntimeError("lost"))},
        {"__dlpack__": raising(RuntimeError("no export")), "__dlpack_device__": lambda _: "cpu"},
        {"__dlpack__": raising(RuntimeError("no export")), "__dlpack_device__": None},
        {"__getattr__": raising(RuntimeError("no attributes"))},
    ],
)
def test_exporters_that_fail(kernel: NativeKernel, members: dict[str, Any]) -> None:
    x: Any = type("Broken", (), {"__dlpack_device__": lambda _: (1, 0)} | members)()
    with pytest.raises(ValueError, match=r"^X: ") as e:
        kernel(x)
    assert "Broken" in str(e.value)


def failing(home: str, name: str, dtype: str) -> Any:
    """An array of a class of that name and module, which its library does not export."""

    def dlpack(*_: object, **__: object) -> object:
        raise TypeError("not exported.\nSee the manual.")

    members = {"__module__": home, "dtype": dtype, "__dlpack__": dlpack, "__dlpack_device__": lambda _: (1, 0)}
    return type(name, (), members)()


@pytest.mark.parametrize(
    ("home", "name", "dtype", "repair"),
    [
        (
            "jax._src",
            "DynamicJaxprTracer",
            "float32",
            "call kernels outside of jit, grad and vmap, or by jax.pure_callback",
        ),
        ("jaxlib", "Array", "bfloat16", "it has elements bfloat16, the kernel takes float32 (f32): convert it first"),
        ("torch", "Tensor", "torch.half", "it has elements half, the kernel takes float32 (f32): convert it first"),
    ],
)
def test_an_array_that_is_not_exported_comes_with_a_repair(
    kernel: NativeKernel, home: str, name: str, dtype: str, repair: str
) -> None:
    value = failing(home, name, dtype)
    what = f"{name} cannot be read by DLPack: TypeError: not exported; {repair}"
    with pytest.raises(ValueError, match=f"{re.escape(what)}$"):
        kernel(value)


def test_an_interrupt_is_no_fault(kernel: NativeKernel) -> None:
    x: Any = type("Slow", (), {"__dlpack__": raising(KeyboardInterrupt()), "__dlpack_device__": lambda _: (1, 0)})()
    with pytest.raises(KeyboardInterrupt):
        kernel(x)


def test_bf16_of_other_libraries_is_its_bits() -> None:
    k = kernel_of(COPY, "bf16")
    bits = np.arange(0x3F80, 0x3F80 + N, dtype=np.uint16)
    for versioned in (True, False):
        np.testing.assert_array_equal(k(Exporter(bits, codes=(BFLOAT, 16, 1), versioned=versioned)), bits)
    np.testing.assert_array_equal(k(Exporter(bits, codes=(UINT, 16, 1))), bits)
    with pytest.raises(ValueError, match=r"^X: expected uint16 \(bf16\), got float16"):
        k(Exporter(bits, codes=(FLOAT, 16, 1)))
    with pytest.raises(ValueError, match=r"^X: .*version"):
        k(Exporter(bits, codes=(BFLOAT, 16, 1), major=2))


# --- NumPy's arrays as they come -----------------------------------------------------------------------------------------


def wide() -> Array:
    return np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (N,), (1 << 40,))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            np.zeros(N, ">f4"),
            r"expected float32 \(f32\), got >f4; convert it first, in NumPy by `.astype\(numpy.float32\)`",
        ),
        (np.zeros(N)[::-1].astype(np.float32)[::-1], "not C-contiguous"),
        (np.broadcast_to(np.float32(1), (N,)), "not C-contiguous"),
        (wide(), "not C-contiguous"),
        (np.array(1, np.float32), r"expected 1 dimension, f32\[6\]|expected shape \(6,\), got \(\)"),
        (np.zeros(0, np.float32), r"expected shape \(6,\), got \(0,\)"),
        (np.zeros(N, [("a", "f4")]), "expected float32"),
        (np.zeros(N, object), "expected float32"),
        (np.zeros(N, "m8[s]"), "expected float32"),
    ],
)
def test_arrays_that_do_not_fit(kernel: NativeKernel, array: Array, message: str) -> None:
    with pytest.raises(ValueError, match=f"^X: .*(?:{message})"):
        kernel(array)


def test_strides_that_no_element_needs_are_no_fault() -> None:
    k = kernel_of(COPY.replace("[6]", "[1, 6]").replace("X[vi]", "X[0, vi]").replace("Y[vi]", "Y[0, vi]"))
    far = np.lib.stride_tricks.as_strided(values(), (1, N), (1 << 60, 4))
    np.testing.assert_array_equal(k(far), values()[None])


def test_overlap_is_by_the_memory(kernel: NativeKernel) -> None:
    memory = np.zeros(4 * N, np.float32)
    for shift in (0, 1, N - 1):
        with pytest.raises(ValueError, match="Y and X share memory"):
            kernel(memory[:N], memory[shift : shift + N])
        with pytest.raises(ValueError, match="Y and X share memory"):
            kernel(lying(memory[shift : shift + N], nbytes=0), Exporter(memory, shape=(N,)))
    kernel(memory[:N], memory[N : 2 * N])


def test_an_empty_array_shares_nothing() -> None:
    k = kernel_of(COPY.replace("X: TYPE[6]", "X: TYPE[0], Z: TYPE[6]").replace("X[vi]", "Z[vi]"))
    memory = np.zeros(2 * N, np.float32)
    k(memory[3:3], values(), memory[:N])
    np.testing.assert_array_equal(memory[:N], values())


# --- types that NumPy has not ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("t", "code"), [("f8e4m3", 10), ("f8e5m2", 12)])
def test_floats_of_8_bits_of_other_libraries_are_their_bits(t: str, code: int) -> None:
    k = kernel_of(COPY, t)
    codes = np.arange(0x30, 0x30 + N, dtype=np.uint8)
    for versioned in (True, False):
        np.testing.assert_array_equal(k(Exporter(codes, codes=(code, 8, 1), versioned=versioned)), codes)
    np.testing.assert_array_equal(k(Exporter(codes, codes=(UINT, 8, 1))), codes)
    with pytest.raises(ValueError, match=rf"^X: expected uint8 \({t}\), got float32"):
        k(np.zeros(N, np.float32))


@pytest.mark.parametrize(
    ("t", "theirs"),
    [("bf16", ml_dtypes.bfloat16), ("f8e4m3", ml_dtypes.float8_e4m3fn), ("f8e5m2", ml_dtypes.float8_e5m2)],
)
def test_arrays_of_ml_dtypes_are_taken_and_filled(t: str, theirs: Any) -> None:
    k = kernel_of(COPY, t)
    x = np.arange(1, N + 1).astype(theirs)
    y = k(x)
    np.testing.assert_array_equal(y.view(theirs), x)
    out = np.zeros(N, theirs)
    assert k(x, out) is out
    np.testing.assert_array_equal(out, x)
    with pytest.raises(ValueError, match=rf"^X: expected uint\d+ \({t}\), got float8_e4m3b11fnuz"):
        k(np.zeros(N, ml_dtypes.float8_e4m3b11fnuz))
