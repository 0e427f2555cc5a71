"""Values that depend on constant inputs alone, prepared once by a C program and by `ctypes`, against NumPy."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.ahead.interface import Status
from tests.ahead.caller import Array, ints
from tests.ahead.made import export, needs_compiler, python, run_c, symbols, task

pytestmark = needs_compiler

Data = np.ndarray[Any, Any]

KINDS = {"f": 2, "i": 0, "u": 1}


def aligned(size: int, off: int = 0) -> Data:
    """Bytes that begin `off` bytes behind a line of 64, with garbage in them."""
    whole = np.full(size + 192, 0xA5, np.uint8)
    begin = -whole.ctypes.data % 64 + off
    return whole[begin : begin + size]


@dataclass
class Library:
    """A library in this process; `name` is that of its task."""

    name: str
    code: ctypes.CDLL

    def bytes(self, *sizes: int) -> int:
        f = self.code[f"{self.name}_prepared_bytes"]
        f.restype = ctypes.c_int64
        return f(*map(ctypes.c_int64, sizes))

    def call(self, what: str, sizes: tuple[int, ...], *arrays: Data | None) -> tuple[int, int]:
        """The status and the argument at fault of a call with pointers."""
        pointers = [ctypes.c_void_p(None if a is None else a.ctypes.data) for a in arrays]
        result = self.code[self.name + what](*map(ctypes.c_int64, sizes), *pointers)
        return result & 255, result >> 8

    def checked(self, what: str, *arrays: Data, memory: Data) -> tuple[int, int]:
        """The same of a call with descriptions; the prepared memory has none."""
        described = [
            Array(a.ctypes.data, 1, 0, a.ndim, KINDS[a.dtype.kind], 8 * a.itemsize, 1, ints(a.shape), None, 0)
            for a in arrays
        ]
        f = self.code[f"{self.name}{what}_checked"]
        result = f((Array * len(arrays))(*described), len(arrays), ctypes.c_void_p(memory.ctypes.data))
        return result & 255, result >> 8


@pytest.fixture(scope="module", name="made")
def made_(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("made")

    @cache
    def made(name: str) -> Library:
        return Library(name, ctypes.CDLL(str(export(folder, name, "so", threads=2))))

    return made


def floats(seed: int, *shape: int) -> Data:
    """Small whole numbers, whose products and sums are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


OK = (Status.OK, 0)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 17, 5), (64, 100, 200), (7, 16, 64), (5, 33, 1)])
def test_open_sizes(m: int, n: int, k: int, made: Any) -> None:
    library = made("weighted_any")
    a, w, c = floats(0, m, k), floats(1, k, n), np.empty((m, n), np.float32)
    memory = aligned(library.bytes(k, n))
    assert library.call("_prepare", (k, n), w, memory) == OK
    want = a @ (w * w)
    w[...] = np.nan
    assert library.call("_run_prepared", (m, k, n), a, c, memory) == OK
    np.testing.assert_array_equal(c, want)
    c[...] = 0
    moved = aligned(memory.size)
    moved[...] = memory  # no address is in it
    memory[...] = 0
    assert library.checked("_run_prepared", a, c, memory=moved) == OK
    np.testing.assert_array_equal(c, want)
    w[...] = -3
    assert library.checked("_prepare", w, memory=moved) == OK
    assert library.checked("_run_prepared", a, c, memory=moved) == OK
    np.testing.assert_array_equal(c, a @ (w * w))
    assert library.call("", (m, k, n), a, w, c) == OK
    np.testing.assert_array_equal(c, a @ (w * w))


def test_nothing_behind_the_memory_is_touched(made: Any) -> None:
    library = made("weighted_any")
    for k, n in ((1, 1), (7, 15), (9, 17), (200, 100)):
        room = aligned(library.bytes(k, n) + 64)
        memory, behind = room[:-64], room[-64:]
        before = behind.copy()
        assert library.call("_prepare", (k, n), floats(0, k, n), memory) == OK
        np.testing.assert_array_equal(behind, before)


def test_constants_that_calls_read_are_copied(made: Any) -> None:
    rng = np.random.default_rng(2)
    library = made("biased")
    a, w = rng.integers(-128, 128, (5, 37), np.int8), rng.integers(-128, 128, (37, 29), np.int8)
    b, scale, c = rng.integers(-1000, 1000, 29, np.int32), np.array(0.5, np.float32), np.empty((5, 29), np.float32)
    want = (a.astype(np.int32) @ w.astype(np.int32) + b).astype(np.float32) * scale
    memory = aligned(library.bytes())
    assert library.call("_prepare", (), w, b, scale, memory) == OK
    for constant in (w, b, scale):
        constant[...] = 77
    assert library.call("_run_prepared", (5,), a, c, memory) == OK
    np.testing.assert_array_equal(c, want)
    assert library.checked("_run_prepared", a, c, memory=memory) == OK
    assert library.checked("_prepare", w.view(np.uint8), b, scale, memory=memory) == (Status.DTYPE, 0)
    assert library.checked("_prepare", w, b[:-1], scale, memory=memory) == (Status.SHAPE, 1)
    assert library.checked("_run_prepared", a[:, 1:].copy(), c, memory=memory) == (Status.SHAPE, 0)


def test_nothing_but_a_copy_may_be_prepared(made: Any) -> None:
    library = made("copied")
    a, w, c = floats(0, 7, 11), floats(1, 11, 13), np.empty((7, 13), np.float32)
    memory = aligned(library.bytes())
    assert library.call("_prepare", (), w, memory) == OK
    want = a @ w
    w[...] = np.nan
    assert library.call("_run_prepared", (), a, c, memory) == OK
    np.testing.assert_array_equal(c, want)


def test_what_is_refused(made: Any) -> None:
    library = made("weighted_any")
    n, k, m = 17, 5, 3
    a, w, c = floats(0, m, k), floats(1, k, n), np.zeros((m, n), np.float32)
    memory, off = aligned(library.bytes(k, n)), aligned(library.bytes(k, n), 32)
    assert [library.bytes(*x) for x in ((0, 1), (1, 101), (201, 1), (-1, -1))] == [-1] * 4
    run, prepare = "_run_prepared", "_prepare"
    assert library.call(run, (m, k, n), a, c, memory) == (Status.UNPREPARED, 2)
    assert library.checked(run, a, c, memory=memory) == (Status.UNPREPARED, 2)
    assert library.call(prepare, (k, n), w, None) == (Status.NULL, 1)
    assert library.call(prepare, (k, n), None, memory) == (Status.NULL, 0)
    assert library.call(prepare, (k, n), w, off) == (Status.MISALIGNED, 1)
    assert library.call(prepare, (0, n), w, memory) == (Status.SIZE, 0)
    assert library.call(prepare, (k, n), memory[64:], memory) == (Status.OVERLAP, 1)
    assert (memory == 0xA5).all()  # nothing was written
    assert library.call(prepare, (k, n), w, memory) == OK
    assert library.call(run, (m, k, n), a, c, None) == (Status.NULL, 2)
    assert library.call(run, (m, k, n), a, c, off) == (Status.MISALIGNED, 2)
    assert library.checked(run, a, c, memory=off) == (Status.MISALIGNED, 2)
    assert library.call(run, (m, k + 1, n), floats(0, m, k + 1), c, memory) == (Status.UNPREPARED, 2)
    assert library.checked(run, floats(0, m, k + 1), c, memory=memory) == (Status.SHAPE, 0)
    assert library.call(run, (65, k, n), a, c, memory) == (Status.SIZE, 0)
    assert library.call(run, (m, k, n), a, memory[128:].view(np.float32), memory) == (Status.OVERLAP, 1)
    assert not c.any()
    other = made("weighted")
    elsewhere = aligned(other.bytes())
    assert other.call(prepare, (), floats(1, 70, 48), elsewhere) == OK
    assert library.call(run, (m, k, n), a, c, elsewhere) == (Status.UNPREPARED, 2)


def test_calls_at_once_share_prepared_memory(made: Any) -> None:
    library = made("weighted_any")
    w = floats(1, 50, 40)
    memory = aligned(library.bytes(50, 40))
    assert library.call("_prepare", (50, 40), w, memory) == OK

    def right(seed: int) -> bool:
        m = 1 + seed % 64
        a, c, own = floats(seed, m, 50), np.empty((m, 40), np.float32), aligned(memory.size)
        statuses = [library.call("_run_prepared", (m, 50, 40), a, c, memory) for _ in range(20)]
        statuses.append(library.call("_prepare", (50, 40), w, own))
        return statuses == [OK] * 21 and np.array_equal(c, a @ (w * w)) and np.array_equal(own, memory)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(right, range(32)))


def test_from_c(tmp_path: Path) -> None:
    for name in ("weighted", "weighted_any", "biased"):
        export(tmp_path, name, "obj", "header", threads=2)
    a, w = floats(0, 3, 70), floats(1, 70, 48)
    (tmp_path / "in").write_bytes(a.tobytes() + w.tobytes())
    program = """
#include "biased.h"
#include "weighted.h"
#include "weighted_any.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3 };

static float a[weighted_A_COUNT(ROWS)], c[2][weighted_C_COUNT(ROWS)];
static double fixed[weighted_PREPARED_BYTES / sizeof(double) + 8];

static void *line(void *p) { return (char *)p + (64 - (size_t)p % 64) % 64; }

static void *again(void *memory) {
    float *own = (float *)malloc(sizeof c[0]);
    size_t wrong = 0;
    for (int n = 0; n < 100; n++) {
        if (weighted_run_prepared(ROWS, a, own, memory) || memcmp(own, c[0], sizeof c[0])) wrong++;
    }
    free(own);
    return (void *)wrong;
}

int main(void) {
    float *w = (float *)malloc(sizeof(float) * weighted_W_COUNT);
    FILE *f = fopen("in", "rb");
    if (!f || fread(a, sizeof a, 1, f) != 1 || fread(w, sizeof(float) * weighted_W_COUNT, 1, f) != 1) return 1;
    fclose(f);
    int64_t bytes = weighted_any_prepared_bytes(70, 48);
    void *block = malloc((size_t)bytes + 63), *open = line(block), *closed = line(fixed);
    if (weighted_prepared_bytes() != weighted_PREPARED_BYTES || bytes < weighted_W_COUNT * 4) return 2;
    if (weighted_prepare(w, closed) || weighted_any_prepare(70, 48, w, open)) return 3;
    memset(w, 255, sizeof(float) * weighted_W_COUNT);
    free(w);
    if (weighted_run_prepared(ROWS, a, c[0], closed)) return 4;
    if (weighted_any_run_prepared(ROWS, 70, 48, a, c[1], open)) return 5;
    int32_t refused = weighted_run_prepared(ROWS, a, c[0], open);
    if (TENSORC_STATUS(refused) != TENSORC_UNPREPARED || TENSORC_ARGUMENT(refused) != 2) return 6;
    pthread_t threads[4];
    void *wrong = NULL;
    for (int t = 0; t < 4; t++) pthread_create(&threads[t], NULL, again, closed);
    for (int t = 0; t < 4; t++) {
        pthread_join(threads[t], &wrong);
        if (wrong) return 7;
    }
    free(block);
    f = fopen("out", "wb");
    return !f || fwrite(c, sizeof c, 1, f) != 1 || fclose(f);
}
"""
    run_c(tmp_path, program, "weighted.o", "weighted_any.o", "biased.o")
    got = np.frombuffer((tmp_path / "out").read_bytes(), np.float32).reshape(2, 3, 48)
    np.testing.assert_array_equal(got, np.stack([a @ w, a @ (w * w)]))


def test_an_argument_may_be_called_prepared() -> None:
    text = task("biased").library(task("biased").sample(0)).make("header").decode()
    assert "int32_t biased_prepare(const int8_t *W, const int32_t *b, const float *prepared, void *prepared_);" in text
    assert "int32_t biased_run_prepared(int64_t M, const int8_t *A, float *C, const void *prepared);" in text


def test_what_a_library_offers(tmp_path: Path) -> None:
    shown = symbols(export(tmp_path, "weighted", "so"), "-D", "--defined-only")
    functions = python(tmp_path / "weighted.so", "print(json.dumps(metadata('weighted')['functions']))")
    assert shown == sorted([*functions, "weighted_metadata"]) == [
        "weighted", "weighted_checked", "weighted_metadata", "weighted_prepare", "weighted_prepare_checked",
        "weighted_prepared_bytes", "weighted_run_prepared", "weighted_run_prepared_checked",
    ]  # fmt: skip
    # The constant input alone does not determine its sizes.
    assert symbols(export(tmp_path, "untold", "so"), "-D", "--defined-only") == [
        "untold", "untold_checked", "untold_metadata",
    ]  # fmt: skip
