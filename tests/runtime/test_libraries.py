"""Arrays of other libraries: outputs belong to the library of the inputs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.runtime.kernel import NativeKernel, load
from tensorc_dsl.ir.arrays import Array
from tests.codegen.native import compiled, program
from tests.runtime.dlpack import BFLOAT, Exporter

N = 4

TWO = f"""
program two(X: TYPE[{N}], W: TYPE[{N}], Y: TYPE[{N}], Z: TYPE[{N}]) {{
    for i in {N} {{ block Y {{ spatial vi in {N} = i; Y[vi] = X[vi] }} }}
    for j in {N} {{ block Z {{ spatial vi in {N} = j; Z[vi] = W[vi] }} }}
}}
"""


class Tensor:
    """A tensor of a library that speaks DLPack as torch does."""

    def __init__(self, memory: Array, bits: bool = False) -> None:
        self.memory = memory
        self.bits = bits

    def __dlpack__(self, **options: Any) -> object:
        if self.bits:
            return Exporter(self.memory, codes=(BFLOAT, 16, 1)).__dlpack__()
        return self.memory.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Named:
    """An array that names its namespace, as the array API standard has it."""

    def __init__(self, memory: Array) -> None:
        self.memory = memory
        self.__dlpack__ = memory.__dlpack__
        self.__dlpack_device__ = memory.__dlpack_device__

    def __array_namespace__(self) -> Any:
        return types.SimpleNamespace(from_dlpack=named)


def named(x: Any) -> Named:
    return Named(np.from_dlpack(x))


def from_dlpack(x: Any) -> Tensor:
    try:
        return Tensor(np.from_dlpack(x))
    except (RuntimeError, BufferError):  # NumPy's, of bf16: the second one since 2.5
        return Tensor(np.from_dlpack(x._exporter), bits=True)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("speaking")
    module.from_dlpack = from_dlpack  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "speaking", module)
    monkeypatch.setattr(Tensor, "__module__", "speaking.of.tensors")
    return module


def kernel_of(dtype: str = "f32") -> NativeKernel:
    return load(compiled(program(TWO.replace("TYPE", dtype))))


@pytest.fixture(scope="module")
def kernel() -> NativeKernel:
    return kernel_of()


def values(seed: int = 0) -> Array:
    return np.random.default_rng(seed).random(N, np.float32)


def test_the_library_of_all_inputs_is_that_of_the_outputs(kernel: NativeKernel, library: types.ModuleType) -> None:
    y, z = kernel(Tensor(values(0)), Tensor(values(1)))
    assert type(y) is type(z) is Tensor
    np.testing.assert_array_equal(y.memory, values(0))
    np.testing.assert_array_equal(z.memory, values(1))


def test_so_it_is_for_a_subclass_of_the_users(kernel: NativeKernel, library: types.ModuleType) -> None:
    class Own(Tensor):
        pass

    assert type(kernel(Own(values()), Own(values()))[0]) is Tensor


def test_a_namespace_that_arrays_name(kernel: NativeKernel) -> None:
    y, z = kernel(Named(values(0)), Named(values(1)))
    assert type(y) is type(z) is Named
    np.testing.assert_array_equal(y.memory, values(0))


def test_several_libraries_make_numpys(kernel: NativeKernel, library: types.ModuleType) -> None:
    for pair in ((Tensor(values()), values()), (values(), Tensor(values())), (Tensor(values()), Named(values()))):
        assert [type(out) for out in kernel(*pair)] == [np.ndarray, np.ndarray]
    assert type(kernel(values(), values())[0]) is np.ndarray


def test_a_type_of_no_library_makes_numpys(kernel: NativeKernel) -> None:
    assert type(kernel(Tensor(values()), Tensor(values()))[0]) is np.ndarray


def test_outputs_that_are_given_come_back(kernel: NativeKernel, library: types.ModuleType) -> None:
    y, z = Tensor(np.zeros(N, np.float32)), np.zeros(N, np.float32)
    back = kernel(Tensor(values(0)), Tensor(values(1)), y, z)
    assert back[0] is y and back[1] is z
    np.testing.assert_array_equal(y.memory, values(0))
    np.testing.assert_array_equal(z, values(1))


def test_outputs_last_longer_than_kernels(library: types.ModuleType) -> None:
    k = kernel_of()
    y, _ = k(Tensor(values(0)), Tensor(values(1)))
    del k
    np.testing.assert_array_equal(y.memory, values(0))


def test_bf16_goes_both_ways(library: types.ModuleType) -> None:
    bits = np.arange(0x3F80, 0x3F80 + N, dtype=np.uint16)
    y, z = kernel_of("bf16")(Tensor(bits, bits=True), Tensor(bits, bits=True))
    assert type(y) is type(z) is Tensor and y.bits and z.bits
    np.testing.assert_array_equal(y.memory, bits)


def test_a_library_that_does_not_take_the_type(kernel: NativeKernel, library: types.ModuleType) -> None:
    def refuse(_: object) -> Any:
        raise TypeError("no such type here")

    library.from_dlpack = refuse  # type: ignore[attr-defined]
    with pytest.raises(
        ValueError, match=r"^Y: .*does not take f32 by DLPack: TypeError: no such type here; pass an out"
    ):
        kernel(Tensor(values()), Tensor(values()))


def test_bound_constants_do_not_decide(library: types.ModuleType) -> None:
    k = load(compiled(program(TWO.replace("W: TYPE", "W: const TYPE").replace("TYPE", "f32"))))
    y, z = k.bind(W=values(1))(Tensor(values(0)))
    assert type(y) is type(z) is Tensor
    np.testing.assert_array_equal(z.memory, values(1))


TORCH = """
import torch, sys
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tests.codegen.native import compiled, program
from tests.runtime.test_libraries import TWO

for name, dtype in {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64}.items():
    kernel = load(compiled(program(TWO.replace("TYPE", name))))
    x, w = torch.arange(4).to(dtype), torch.arange(4, 8).to(dtype)
    y, z = kernel(x, w)
    assert type(y) is torch.Tensor and y.dtype == dtype and torch.equal(y, x) and torch.equal(z, w), (y, z)
    out = torch.zeros(4, dtype=dtype)
    assert kernel(x, w, out, z)[0] is out and torch.equal(out, x)
    assert type(kernel(torch.nn.Parameter(x, requires_grad=False), w)[0]) is torch.Tensor
try:
    kernel = load(compiled(program(TWO.replace("TYPE", "f32"))))
    kernel(torch.ones(4, requires_grad=True), torch.ones(4))
except ValueError as e:
    assert "grad" in str(e), e
else:
    raise AssertionError
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torch_itself() -> None:
    """In a process of its own: torch brings threads and an OpenMP of its own."""
    subprocess.run([sys.executable, "-c", TORCH], check=True, timeout=300)


JAX = """
import jax, jax.numpy as jnp
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tests.codegen.native import compiled, program
from tests.runtime.test_libraries import TWO

for name, dtype in {"f32": jnp.float32, "bf16": jnp.bfloat16}.items():
    kernel = load(compiled(program(TWO.replace("TYPE", name))))
    x, w = jnp.arange(4).astype(dtype), jnp.arange(4, 8).astype(dtype)
    y, z = kernel(x, w)
    assert isinstance(y, jax.Array) and y.dtype == dtype and (y == x).all() and (z == w).all(), (y, z)
    try:
        kernel(x, w, y, z)
    except ValueError as e:
        assert "read-only" in str(e), e
    else:
        raise AssertionError
"""


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_jax_itself() -> None:
    subprocess.run([sys.executable, "-c", JAX], check=True, timeout=300)
