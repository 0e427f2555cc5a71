"""The fast path into a kernel: it is taken only for calls that fit it, and gives the results of the slow path."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.runtime import native
from tensorc_dsl.backend.llvm.runtime.kernel import BoundKernel, NativeKernel, load
from tensorc_dsl.ir.arrays import Array
from tests.codegen.native import compiled, program

ROWS, COLUMNS = 5, 7

TWO = f"""
program two(X: f32[{ROWS}, {COLUMNS}], s: f32, Y: f32[{ROWS}, {COLUMNS}], n: i32[{ROWS}]) {{
    for i in {ROWS}, j in {COLUMNS} {{
        block Y {{
            spatial vi in {ROWS} = i
            spatial vj in {COLUMNS} = j
            Y[vi, vj] = X[vi, vj] * s
        }}
    }}
    for i_1 in {ROWS} {{
        block n {{
            spatial vi in {ROWS} = i_1
            n[vi] = i32(X[vi, 0])
        }}
    }}
}}
"""


def arrays(seed: int = 0) -> tuple[Array, Array, Array, Array]:
    x = np.random.default_rng(seed).uniform(1, 9, (ROWS, COLUMNS)).astype(np.float32)
    return x, np.array(seed + 2, np.float32), np.zeros_like(x), np.zeros(ROWS, np.int32)


@pytest.fixture
def kernel() -> NativeKernel:
    return load(compiled(program(TWO)))


def bound(kernel: NativeKernel) -> BoundKernel:
    return kernel.bind()


def door(kernel: NativeKernel) -> native.Doorway:
    found = bound(kernel)._door  # pyright: ignore[reportPrivateUsage]
    assert found is not None
    return found


def right(given: tuple[Array, ...]) -> None:
    x, s, y, n = given
    np.testing.assert_array_equal(y, x * s)
    np.testing.assert_array_equal(n, x[:, 0].astype(np.int32))


def test_it_runs_the_kernel(kernel: NativeKernel) -> None:
    given = arrays()
    assert door(kernel)(*given) is given[3]
    right(given)


def test_kernels_take_it(kernel: NativeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def long(*_: object) -> None:
        raise AssertionError("the long way was taken")

    monkeypatch.setattr(BoundKernel, "_call", long)
    given = arrays()
    made = kernel(*given[:2])
    assert isinstance(made, tuple)
    right((*given[:2], *made))
    filled = kernel(*given)
    assert isinstance(filled, tuple) and filled[0] is given[2] and filled[1] is given[3]
    right(given)


def strided(a: Array) -> Array:
    return np.zeros((*a.shape, 2), a.dtype)[..., 0]


def locked(a: Array) -> Array:
    out = a.copy()
    out.flags.writeable = False
    return out


def unaligned(a: Array) -> Array:
    return np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)


@pytest.mark.parametrize(
    ("n", "change"),
    [
        (0, lambda a: a.astype(np.float64)),
        (0, lambda a: a.astype(">f4")),
        (0, lambda a: a[:-1]),
        (0, lambda a: a.T),
        (0, lambda a: a[None]),
        (0, strided),
        (0, unaligned),
        (1, lambda a: a[None]),
        (2, locked),
        (3, lambda a: a.astype(np.uint32)),
        (3, lambda _: None),
    ],
)
def test_what_does_not_fit_is_left_alone(kernel: NativeKernel, n: int, change: Any) -> None:
    given: list[Any] = [*arrays()]
    given[n] = change(given[n])
    assert door(kernel)(*given) is None
    assert not np.any(given[2]), "it wrote something"
    with pytest.raises(ValueError, match=r"expected|contiguous|aligned|read-only"):
        kernel(*given)


def test_shared_memory_is_left_alone(kernel: NativeKernel) -> None:
    x, s, y, n = arrays()
    memory = np.zeros(ROWS * COLUMNS + 3, np.float32)
    ahead, behind = (memory[k : k + ROWS * COLUMNS].reshape(ROWS, COLUMNS) for k in (0, 3))
    assert door(kernel)(ahead, s, behind, n) is None
    assert door(kernel)(behind, s, ahead, n) is None
    assert door(kernel)(x, s, y, y.reshape(-1)[-ROWS:].view(np.int32)) is None
    with pytest.raises(ValueError, match="share memory"):
        kernel(ahead, s, behind, n)
    near = memory[: ROWS * COLUMNS].reshape(ROWS, COLUMNS)
    assert door(kernel)(near, s, y, n) is n


def test_numbers_of_arrays(kernel: NativeKernel) -> None:
    given = arrays()
    for some in ((), given[:1], given[:3], (*given, given[0])):
        assert door(kernel)(*some) is None
    with pytest.raises(ValueError, match="takes 4 arrays"):
        kernel(*given[:3])


class Sub(np.ndarray[Any, Any]):
    """NumPy's arrays with a type of their own."""


def test_arrays_of_another_make_go_the_long_way(kernel: NativeKernel) -> None:
    x, s, y, n = arrays()
    assert door(kernel)(x.view(Sub), s, y, n) is None
    kernel(x.view(Sub), s, y, n)
    right((x, s, y, n))
    told = np.zeros((ROWS, COLUMNS), np.dtype("f4", metadata={"unit": "m"}))
    assert door(kernel)(told, s, y, n) is None
    kernel(told, s, y, n)
    assert not y.any()


def test_references_are_counted(kernel: NativeKernel) -> None:
    given, go = arrays(), door(kernel)
    before = [sys.getrefcount(a) for a in given]
    for _ in range(1000):
        go(*given)
        go()
    assert [sys.getrefcount(a) for a in given] == before


@pytest.fixture
def frozen_heap() -> None:
    """What there is now is not looked at by the collector, which in a run of all tests takes half a second each time."""
    gc.freeze()  # for the tests that follow, too: to unfreeze it would give them back all that was frozen after collection


def test_a_kernel_that_is_forgotten(frozen_heap: None) -> None:
    given = arrays()
    for _ in range(20):
        load(compiled(program(TWO)))(*given)
        gc.collect()
    right(given)


def test_calls_from_several_threads(kernel: NativeKernel) -> None:
    run, faults = bound(kernel), list[Exception]()

    def work(seed: int) -> None:
        try:
            for k in range(300):
                given = arrays(seed + k)
                run(*given)
                right(given)
        except Exception as e:
            faults.append(e)

    threads = [threading.Thread(target=work, args=(1000 * k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_nothing_there() -> None:
    k = load(compiled(program(TWO.replace(f"{COLUMNS}", "0").replace("X[vi, 0]", "s"))))
    x, s, y, n = np.zeros((ROWS, 0), np.float32), np.array(3, np.float32), np.zeros((ROWS, 0), np.float32), arrays()[3]
    assert door(k)(x, s, y, n) is n
    assert (n == 3).all()


def test_a_python_with_other_arrays(kernel: NativeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_method", [])
    monkeypatch.setattr(native, "_as_expected", lambda: False)
    assert bound(kernel)._door is None  # pyright: ignore[reportPrivateUsage]
    given = arrays()
    kernel(*given)
    right(given)


OPEN = """
program rows(X: f32[M, 7], W: const f32[7, N], Y: f32[M, N], Z: f32[M + 1]) where M in 2..40, N in 1..9 {
    buffer T: f32[M, N]
    for i in M, j in N, k in 7 {
        block T {
            spatial vi in M = i
            spatial vj in N = j
            reduce vk in 7 = k
            init { T[vi, vj] = 0.0 }
            T[vi, vj] = T[vi, vj] + X[vi, vk] * W[vk, vj]
        }
    }
    for i_1 in M, j_1 in N {
        block Y {
            spatial vi in M = i_1
            spatial vj in N = j_1
            Y[vi, vj] = T[vi, vj] + 1.0
        }
    }
    for i_2 in M + 1 {
        block Z {
            spatial vi in M + 1 = i_2
            Z[vi] = 3.0
        }
    }
}
"""


def test_open_sizes_take_it_at_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    w = rng.random((7, 5), np.float32)
    kernel = load(compiled(program(OPEN))).bind(W=w)
    kernel(np.zeros((40, 7), np.float32))  # it has enough scratch memory from now on

    def long(*_: object) -> None:
        raise AssertionError("the long way was taken")

    monkeypatch.setattr(BoundKernel, "_call", long)
    for m in range(2, 41):
        x = rng.random((m, 7), np.float32)
        y, z = kernel(x)
        np.testing.assert_allclose(y, x @ w + 1, rtol=1e-5)
        assert z.shape == (m + 1,) and (z == 3).all()
        again = kernel(x, np.zeros_like(y), np.zeros_like(z))
        np.testing.assert_array_equal(again[0], y)


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 7), (1, 5), (2,)),
        ((41, 7), (41, 5), (42,)),
        ((4, 7), (4, 5), (4,)),
        ((4, 7), (3, 5), (5,)),
        ((4, 7), (4, 4), (5,)),
        ((4, 6), (4, 5), (5,)),
        ((4, 7), (4, 5), (0,)),
    ],
)
def test_open_sizes_that_do_not_fit_are_left_alone(shapes: tuple[tuple[int, ...], ...]) -> None:
    kernel = load(compiled(program(OPEN))).bind(W=np.ones((7, 5), np.float32))
    kernel(np.zeros((40, 7), np.float32))
    given = [np.zeros(s, np.float32) for s in shapes]
    found = kernel._door  # pyright: ignore[reportPrivateUsage]
    assert found is not None
    assert found(*given) is None
    assert not any(map(np.any, given))
    with pytest.raises(ValueError, match=r"expected|takes"):
        kernel(*given)


def test_outputs_that_overlap_at_open_sizes_are_left_alone() -> None:
    kernel = load(compiled(program(OPEN))).bind(W=np.ones((7, 5), np.float32))
    kernel(np.zeros((40, 7), np.float32))
    memory = np.zeros(400, np.float32)
    x, y, z = memory[:28].reshape(4, 7), memory[28:48].reshape(4, 5), memory[47:52]
    with pytest.raises(ValueError, match="share memory"):
        kernel(x, y, z)
    y, z = kernel(x, y, memory[48:53])
    assert (z == 3).all()
