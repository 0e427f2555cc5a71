"""Kernels as callables: valid and invalid arguments, threads and processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.codegen.compile import Compiled, compile_kernel
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.kernel import NativeKernel, load
from tensorc_dsl.backend.memory import aligned_copy, aligned_empty
from tensorc_dsl.tuning.machine.host import host_target
from tests.codegen.native import program

ROWS, COLUMNS = 24, 700


def row_sums(threads: int) -> Compiled:
    """T = X + 1 on the heap, then the row sums of T, each row a task."""
    p = program(f"""
program sums(X: f32[{ROWS}, {COLUMNS}], C: f32[{ROWS}]) {{
    buffer T: f32[{ROWS}, {COLUMNS}]
    parallel for i in {ROWS} {{
        vectorized for j in {COLUMNS} {{
            block T {{
                spatial vi in {ROWS} = i
                spatial vj in {COLUMNS} = j
                T[vi, vj] = X[vi, vj] + 1.0
            }}
        }}
    }}
    parallel for i_1 in {ROWS} {{
        for k in {COLUMNS} {{
            block C {{
                spatial vi in {ROWS} = i_1
                reduce vk in {COLUMNS} = k
                init {{ C[vi] = 0.0 }}
                C[vi] = C[vi] + T[vi, vk]
            }}
        }}
    }}
}}
""")
    return compile_kernel(lower_cpu(p), host_target(threads), threads)


COMPILED = row_sums(2)


def inputs(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, (ROWS, COLUMNS)).astype(np.float32)


def right(kernel: NativeKernel, seed: int) -> bool:
    x = inputs(seed)
    return np.allclose(kernel(x), (x.astype(np.float64) + 1).sum(axis=1), rtol=1e-4)


@pytest.fixture(scope="module")
def kernel() -> NativeKernel:
    return load(COMPILED)


def test_outputs_are_made_or_filled(kernel: NativeKernel) -> None:
    x, c = inputs(0), np.zeros(ROWS, np.float32)
    out = kernel(x, c)
    assert out is c
    np.testing.assert_array_equal(kernel(x), c)


class Foreign:
    """Something that speaks DLPack and is no NumPy array."""

    def __init__(self, a: np.ndarray) -> None:
        self.a = a

    def __dlpack__(self, **options: Any) -> Any:
        return self.a.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.a.__dlpack_device__()


def test_dlpack_arrays_are_taken(kernel: NativeKernel) -> None:
    x = inputs(0)
    np.testing.assert_array_equal(kernel(Foreign(x)), kernel(x))


@pytest.mark.parametrize(("arrays", "message"), [
    ((), "takes 2 arrays"),
    ((inputs(0), inputs(0), inputs(0)), "3 given"),
    ((inputs(0).astype(np.float64),), r"X: expected float32 \(f32\), got float64"),
    ((inputs(0)[:, 1:],), r"X: expected shape \(24, 700\), got \(24, 699\)"),
    ((np.asfortranarray(inputs(0)),), "not C-contiguous"),
    (([1.0, 2.0],), "expected an array, got list"),
    ((inputs(0), np.zeros((ROWS, 1), np.float32)), r"C: expected shape \(24,\)"),
])  # fmt: skip
def test_wrong_arguments_are_named(kernel: NativeKernel, arrays: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(*arrays)


def test_arrays_are_given_by_name(kernel: NativeKernel) -> None:
    x = inputs(0)
    want, c = kernel(x), np.zeros(ROWS, np.float32)
    np.testing.assert_array_equal(kernel(X=x), want)
    assert kernel(C=c, X=x) is c
    np.testing.assert_array_equal(c, want)
    assert kernel(x, C=c) is c


@pytest.mark.parametrize(("arrays", "named", "message"), [
    ((), {"x": inputs(0)}, "no array 'x'; did you mean `X`"),
    ((inputs(0),), {"X": inputs(0)}, "X: given twice"),
    ((), {"C": np.zeros(ROWS, np.float32)}, "X: not given"),
    ((inputs(0), inputs(0), inputs(0)), {"C": inputs(0)}, "3 given without a name"),
])  # fmt: skip
def test_wrong_names_of_arrays_are_named(
    kernel: NativeKernel, arrays: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(*arrays, **named)


def test_a_strided_output_is_not_to_be_copied(kernel: NativeKernel) -> None:
    """A dense copy of it would be filled, and the caller's array would not change: that is no repair."""
    with pytest.raises(ValueError, match=r"C: the array is not C-contiguous .*; leave the output out") as e:
        kernel(inputs(0), np.zeros(2 * ROWS, np.float32)[::2])
    assert "ascontiguousarray" not in str(e.value)


def test_read_only_and_overlapping_outputs_are_refused(kernel: NativeKernel) -> None:
    c = np.zeros(ROWS, np.float32)
    c.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kernel(inputs(0), c)
    x = inputs(0)
    with pytest.raises(ValueError, match="C and X share memory"):
        kernel(x, x.reshape(-1)[:ROWS])
    bytes_ = np.zeros(ROWS * 4 + 1, np.uint8)
    with pytest.raises(ValueError, match="not aligned"):
        kernel(x, bytes_[1:].view(np.float32))


def test_native_times_are_plausible(kernel: NativeKernel) -> None:
    x, c = aligned_copy(inputs(0)), aligned_empty((ROWS,), np.dtype(np.float32))
    start = time.perf_counter()
    times = kernel.time((x, c), 20)
    wall = time.perf_counter() - start
    assert len(times) == 20
    assert 0 < sum(times) <= wall
    with pytest.raises(ValueError, match="at least 1"):
        kernel.time((x, c), 0)


def test_many_python_threads_at_once(kernel: NativeKernel) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        for _ in range(100):
            if not right(kernel, seed):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_starts_threads_of_its_own(kernel: NativeKernel) -> None:
    assert right(kernel, 1)
    pid = os.fork()
    if pid == 0:
        ok = all(right(kernel, k) for k in range(20)) and threads_here() >= 2
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert right(kernel, 2)


def threads_here() -> int:
    return len(os.listdir("/proc/self/task"))


def spawned(compiled: Compiled, answers: Any) -> None:
    answers.put(right(load(compiled), 3))


def test_a_spawned_child_runs_a_kernel_sent_to_it() -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=spawned, args=(COMPILED, answers))
    child.start()
    assert answers.get(timeout=60)
    child.join(timeout=60)
    assert child.exitcode == 0


def test_more_threads_than_processors_and_than_tasks() -> None:
    for threads in (1, 3, 17, 300):
        assert right(load(row_sums(threads)), threads)


def test_code_is_freed_with_the_kernel() -> None:
    with open("/proc/self/statm") as f:
        before = int(f.read().split()[0])
    for _ in range(60):
        assert right(load(COMPILED), 0)
    gc.collect()
    with open("/proc/self/statm") as f:
        after = int(f.read().split()[0])
    assert (after - before) * 4096 < 40 * 2**20


FAR = """
import ctypes
import numpy as np
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tests.runtime.test_kernel import COMPILED, inputs

libc = ctypes.CDLL(None)
libc.mmap.restype, libc.munmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t]
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
PRIVATE_WITHOUT_SWAP, PAGE, FAR = 0x4022, 1 << 12, (1 << 32) + (1 << 12)


def reserved(size):
    return libc.mmap(None, size, 0, PRIVATE_WITHOUT_SWAP, -1, 0)


lowest = reserved(FAR)
for size in [(1 << k) + PAGE for k in range(30, 12, -1)] + [PAGE]:  # what is free above
    while (at := reserved(size)) > lowest:
        pass
    libc.munmap(at, size)
holes = [(reserved(pages * PAGE), reserved(FAR)) for pages in range(1, 17)]
for pages, (hole, _) in enumerate(holes, 1):
    libc.munmap(hole, pages * PAGE)
x = inputs(0)
np.testing.assert_allclose(load(COMPILED)(x), (x + 1).sum(1), rtol=1e-5)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reserves memory as Linux does")
def test_code_is_linked_where_free_memory_is_in_holes_that_lie_far_apart() -> None:
    """As beside large libraries; a hole for the code alone leaves the constants 4 GiB away from it."""
    done = subprocess.run([sys.executable, "-c", FAR], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
