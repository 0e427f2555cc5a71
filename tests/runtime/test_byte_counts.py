"""Sizes of memory beyond 64 bits: refused where they are computed, by Python, by C and by the compiler."""

from __future__ import annotations

import ctypes
import pickle
from pathlib import Path
from random import Random

import llvmlite.binding as llvm
import numpy as np
import pytest

from tensorc_dsl.backend.llvm.codegen.compile import UNCOUNTED, byte_count
from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.llvm.runtime.native import runtime
from tensorc_dsl.backend.memory import MOST_BYTES, OutOfMemory, aligned_empty
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.ir.expr import ZERO, Binary, BinaryOp, Const, Dim, Expr, index
from tensorc_dsl.ir.program import LoopKind
from tensorc_dsl.lower.flat import Loop, Parallel, inside
from tensorc_dsl.lower.lower import collapse_parallel
from tensorc_dsl.tuning.machine.host import host_target
from tests.ahead.made import needs_compiler, run_c

STAGES = """
compute total(A: f64[N], B: f64[M], C: f64[K]) -> Y: f64[N] {
    let T[i in N, j in M, k in K] = A[i] + B[j] * C[k]
    let U[i in N, j in M, k in K] = T[i, j, k] + A[i]
    Y[i] = sum[j in M, k in K] U[i, j, k] * T[i, j, k]
}

compute weighted(X: f64[P], A: const f64[N], B: const f64[M], C: const f64[K]) -> Y: f64[P] {
    let T[i in N, j in M, k in K] = A[i] + B[j] * C[k]
    let U[i in N, j in M, k in K] = T[i, j, k] + A[i]
    Y[p] = sum[i in N, j in M, k in K] U[i, j, k] * T[i, j, k] * X[p]
}

schedule empty for total {
}

/// Each worker has buffers of its own.
schedule workers for total {
    let [i, j, k] = Y.loops
    parallel(i)
    compute_at(U, i)
    compute_at(T, i)
}

schedule once for weighted {
}

"""
OPEN, LARGE = "N=1..1048576, M=1..1048576, K=1..524288", (2**20, 2**20, 2**19)


def made(task: str, threads: int = 2) -> Task:
    return loads(f"{STAGES}\ntask t = {task}", threads=threads)["t"]


def of(n: int, m: int, k: int) -> tuple[np.ndarray, ...]:
    return np.linspace(0, 1, n), np.linspace(1, 2, m), np.linspace(2, 3, k)


def total(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    t = a[:, None, None] + b[:, None] * c
    return ((t + a[:, None, None]) * t).sum(axis=(1, 2))


@pytest.mark.parametrize(("schedule", "most"), [("empty", 2**19), ("workers", 2**18)])
def test_a_kernel_is_right_or_says_that_there_is_no_memory(schedule: str, most: int) -> None:
    """The total of two buffers was 2**63 bytes or a multiple of 2**64, and the kernel wrote outside of its memory."""
    t = made(f"total(N=1..1048576, M=1..1048576, K=1..{most}) with {schedule}")
    kernel = pickle.loads(pickle.dumps(t.replay(t.sample(0))))
    for sizes in ((1, 1, 1), (3, 5, 7), (2, 31, 1)):
        np.testing.assert_allclose(kernel(*of(*sizes)), total(*of(*sizes)), rtol=1e-12)
    for sizes in ((2**20, 2**20, most), (2**20 - 1, 2**20 - 1, most - 1), (3, 2**20, most)):
        with pytest.raises(MemoryError) as found:
            kernel(*of(*sizes))
        assert isinstance(found.value, OutOfMemory) and found.value.diagnostics[0].code == "E0933"


def test_prepared_memory_is_counted() -> None:
    t = made(f"weighted(P=3, {OPEN}) with once")
    kernel = t.replay(t.sample(0))
    x, small = np.ones(3), dict(zip("ABC", of(2, 3, 4), strict=True))
    np.testing.assert_allclose(kernel.bind(**small)(x), kernel(x, **small))
    large = dict(zip("ABC", of(*LARGE), strict=True))
    for call in (lambda: kernel.bind(**large), lambda: kernel(x, **large)):
        with pytest.raises(OutOfMemory, match="E0933"):
            call()


@pytest.mark.parametrize("sizes", [LARGE, (2**20, 2**20, 2**18), (2**20, 2**19, 2**18)])
def test_fixed_sizes_are_refused_by_the_compiler(sizes: tuple[int, int, int]) -> None:
    """The size of 2**63 bytes was 0."""
    t = made("total(N={}, M={}, K={}) with empty".format(*sizes))
    with pytest.raises(
        TschedError, match="E0908: the schedule does not compile: its intermediate results take"
    ) as found:
        t.replay(t.sample(0))
    (at,) = (d.span for d in found.value.diagnostics)
    assert at is not None and at.text == "t" and at.source.text[at.end :].startswith(" = total(")


MAIN = """
#include "t.h"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    double *a = calloc(1 << 20, 8), *b = calloc(1 << 20, 8), *c = calloc(1 << 20, 8), *y = calloc(1 << 20, 8);
    int64_t n = INT64_C(1) << 20;
    printf("%d %d %d ", CALL(n, n, n / 2), CALL(n - 1, n - 1, n / 2 - 1), CALL(3, n, n / 2));
    printf("%d %d %d\\n", CALL(n + 1, n, n / 2), CALL(INT64_MIN, 1, 1), CALL(3, 2, 1));
    printf("%d\\n", SIZE(n, n, n / 2) == -1);
    return 0;
}
"""


@needs_compiler
def test_a_library_returns_a_status(tmp_path: Path) -> None:
    t = made(f"total({OPEN}) with empty")
    t.export(t.sample(0), tmp_path / "t.o", "obj")
    t.export(t.sample(0), tmp_path / "t.h", "header")
    call = "t(N, M, K, a, b, c, y)"
    text = MAIN.replace(
        "#include <stdio.h>", f"#include <stdio.h>\n#define CALL(N, M, K) (int){call}\n#define SIZE(N, M, K) -1"
    )
    assert run_c(tmp_path, text, "t.o").split() == ["5", "5", "5", "3", "3", "0", "1"]


@needs_compiler
def test_a_library_counts_prepared_memory(tmp_path: Path) -> None:
    t = made(f"weighted(P=3, {OPEN}) with once")
    t.export(t.sample(0), tmp_path / "t.o", "obj")
    t.export(t.sample(0), tmp_path / "t.h", "header")
    define = (
        "#define CALL(N, M, K) (int)t_prepare(N, M, K, a, b, c, y)\n#define SIZE(N, M, K) t_prepared_bytes(N, M, K)"
    )
    text = MAIN.replace("#include <stdio.h>", f"#include <stdio.h>\n{define}").replace(
        "y = calloc(1 << 20, 8)", "y = aligned_alloc(64, 1 << 20)"
    )
    found = run_c(tmp_path, text, "t.o", compiler=("cc", "-std=c11")).split()
    assert found == ["5", "5", "772", "3", "3", "0", "1"]  # the third: so much memory would overlap the inputs


def test_counts_are_exact_or_uncounted() -> None:
    """Random sums and products of sizes near 2**31, 2**53 and 2**63, beside Python's numbers of any length."""
    rng = Random(7)
    names = ("N", "M", "K")

    def size(depth: int) -> Expr:
        if not depth or rng.random() < 0.2:
            return (
                Dim(rng.choice(names), 1, 2**63 - 1)
                if rng.random() < 0.7
                else index(rng.choice([1, 8, 63, 2**31, 2**53]))
            )
        ops: tuple[BinaryOp, ...] = ("+", "*", "*", "max", "/")
        op = rng.choice(ops)
        divisor = index(rng.choice([1, 16, 64]))
        return Binary(op, size(depth - 1), divisor if op == "/" else size(depth - 1))

    every = [size(4) for _ in range(60)]
    module = Module(frozenset())
    for k, e in enumerate(every):
        f = Function(module)
        values = {n: f"%d{j}" for j, n in enumerate(names)}
        result = byte_count(f, e, values)
        f.define(f"define i64 @count{k}(i64 %d0, i64 %d1, i64 %d2)", f"i64 {result}")
    library = llvm.JITLibraryBuilder().add_object_img(Machine(host_target(1)).object_code(module.text()))
    for k in range(len(every)):
        library.export_symbol(f"count{k}")
    tracker = library.link(runtime().jit, "byte_counts")
    near = [x + d for x in (1, 2**20, 2**31, 2**53, 2**60) for d in (-1, 0, 1) if x + d > 0] + [2**63 - 1]
    exact = 0
    for k, e in enumerate(every):
        call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(int(tracker[f"count{k}"]))
        for _ in range(50):
            some = {n: rng.choice(near) for n in names}
            want, got = _value(e, some), call(*some.values())
            assert got == UNCOUNTED or got == want <= MOST_BYTES, (e, some)
            exact += got == want
    assert exact > 500


def _value(e: Expr, sizes: dict[str, int]) -> int:
    match e:
        case Dim(name=name):
            return sizes[name]
        case Binary(op=op, lhs=a, rhs=b):
            x, y = _value(a, sizes), _value(b, sizes)
            return {"+": x + y, "*": x * y, "max": max(x, y), "/": x // max(y, 1)}[op]
        case Const(value=n):
            return int(n)
        case _:
            raise AssertionError(e)


def test_parallel_loops_are_one_as_far_as_64_bits_count_them() -> None:
    """The product of these extents is 2**64, which was 0 tasks, and nothing was computed."""

    def nest(*extents: int) -> tuple[Loop, ...]:
        body: tuple[Loop, ...] = ()
        for n, extent in reversed(list(enumerate(extents))):
            body = (Loop(f"i{n}", ZERO, index(extent), LoopKind.PARALLEL, body),)
        return body

    (both,) = (s for s in inside(collapse_parallel(nest(2**31, 2**31), inside=False)) if isinstance(s, Parallel))
    assert len(both.vars) == 2
    (one,) = (s for s in inside(collapse_parallel(nest(2**32, 2**32), inside=False)) if isinstance(s, Parallel))
    assert one.vars == ("i0",)


def test_no_array_is_larger_than_memory() -> None:
    for shape in ((2**61,), (2**40, 2**40), (2**63, 2)):
        with pytest.raises(OutOfMemory, match="more than 1,152,921,504,606,846,976 bytes"):
            aligned_empty(shape, np.dtype(np.float64))


def test_large_arrays_begin_equally_far_behind_a_page() -> None:
    """Else where the next elements are loaded is where the last ones were stored, in the bits that are compared first."""
    kept = [aligned_empty((n,), np.dtype(np.float32)) for n in (1, 99, 16 * 1024, 1023 * 1025, 1 << 20, (1 << 20) + 16)]
    assert [a.ctypes.data % 64 for a in kept] == [0] * 6
    assert [a.ctypes.data % 4096 for a in kept[2:]] == [0] * 4
