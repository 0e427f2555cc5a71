"""The loader in C: it compiles without a toolkit, and launches what it should, on a driver that writes down its calls."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import tensorc_dsl as td
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.faces.api import Task
from tensorc_dsl.schedule.trace.trace import Trace
from tests.stdlib.gpu_checks import task

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

DRIVER = """
#include <stdio.h>
#include <string.h>
static int names;
int cuModuleLoadDataEx(void **m, const void *image, unsigned n, void *o, void *v) {
    printf("load %d\\n", strstr(image, ".version 8.0") != 0);
    *m = &names;
    return 0;
}
int cuModuleUnload(void *m) { printf("unload\\n"); return 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) { printf("function %s\\n", name); *f = (void *)name; return 0; }
int cuFuncSetAttribute(void *f, int what, int value) { printf("attribute %d %d\\n", what, value); return 0; }
int cuMemsetD8Async(unsigned long long to, unsigned char value, size_t size, void *stream) {
    printf("set %llu %d %d\\n", to, value, (int)size);
    return 0;
}
int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c, unsigned bytes,
                   void *stream, void **arguments, void **extra) {
    printf("launch %s %u %u %u %u %u %u %u", (char *)f, x, y, z, a, b, c, bytes);
    for (int n = 0; n < COUNT; n++) printf(" %llu", *(unsigned long long *)arguments[n]);
    printf("\\n");
    return RESULT;
}
"""

MAIN = """
#include "t.h"
#include <stdio.h>
int main(void) {
    t_module m;
    printf("%d\\n", t_load(&m));
CALLS
    printf("%d\\n", t_unload(&m));
    return 0;
}
"""


def said(folder: Path, text: str, seed: int, calls: list[str], count: int, result: int = 0) -> list[str]:
    """What the driver and the calls write, for a loader of the schedule with that seed."""
    t = task(folder, text)
    return told(folder, t, t.sample(seed), calls, count, result)


def told(folder: Path, t: Task, trace: Trace, calls: list[str], count: int, result: int = 0) -> list[str]:
    """As `said`, of a schedule."""
    library = t.library(trace)
    (folder / "t.h").write_bytes(library.make("header"))
    (folder / "t.c").write_bytes(library.make("loader"))
    (folder / "driver.c").write_text(DRIVER.replace("COUNT", str(count)).replace("RESULT", str(result)))
    (folder / "main.c").write_text(MAIN.replace("CALLS", "\n".join(f'    printf("%d\\n", (int){c});' for c in calls)))
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
    sources = ["t.c", "driver.c", "main.c"]
    subprocess.run(["cc", *flags, "-o", "main", *sources], cwd=folder, check=True, timeout=120)
    done = subprocess.run(["./main"], cwd=folder, check=True, capture_output=True, text=True, timeout=120)
    return done.stdout.splitlines()


def test_a_product_is_loaded_and_launched(tmp_path: Path) -> None:
    text = "matmul(M=64, N=64, K=32)"
    lines = said(tmp_path, text, 0, ["t(&m, 0, 1024, 2048, 4096)", "t(&m, 0, 1024, 0, 4096)", "t(&m, 0, 8, 16, 32)"], 3)
    t = task(tmp_path, text)
    (k,) = lower_device(t.sample(0).program).kernels
    x = k.grid[0].value  # type: ignore[union-attr]
    launch = f"launch t_0 {x} 1 1 {k.threads} 1 1 {k.shared_bytes} 1024 2048 4096"
    assert lines == [
        "load 1", "function t_0", f"attribute 8 {k.shared_bytes}", "0", launch, "0", "-1", "-1", "unload", "0"
    ]  # fmt: skip


def test_intermediate_arrays_lie_in_scratch_memory(tmp_path: Path) -> None:
    text = "softmax(M=3, N=64)"
    lines = said(tmp_path, text, 0, ["t_scratch_bytes()", "t(&m, 0, 1024, 2048, 4096)"], 2)
    p = lower_device(task(tmp_path, text).sample(0).program)
    assert p.scratch
    launches = [line for line in lines if line.startswith("launch")]
    assert len(launches) == len(p.kernels)
    assert all(int(address) in (1024, 2048) or int(address) >= 4096 for x in launches for address in x.split()[9:])
    assert any(int(address) >= 4096 for x in launches for address in x.split()[9:])


def test_sizes_are_arguments_and_an_error_of_the_driver_is_returned(tmp_path: Path) -> None:
    calls = ["t(&m, 0, 16, 32, 48, 20)", "t(&m, 0, 16, 32, 48, 0)", "t(&m, 0, 16, 32, 48, 65)"]
    lines = said(tmp_path, "matmul(M=1..64, N=33, K=16)", 0, calls, 4, result=700)
    (launch,) = (x for x in lines if x.startswith("launch"))
    assert launch.endswith(" 16 32 48 20")
    assert lines[-5:-2] == ["700", "-2", "-2"]


def test_more_blocks_than_a_grid_has_are_not_launched(tmp_path: Path) -> None:
    text = """
use std.gpu.targets.{sm_80}
compute doubled(X: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = 2 * X[i, j] }
schedule rows for doubled { let [i, j] = Y.loops; bind(i, "block.y"); bind(j, "thread.x") }
task t = doubled(M=1..100000, N=4) with rows
"""
    (tmp_path / "t.tsched").write_text(text)
    t = td.load(tmp_path / "t.tsched", target="sm_80")["t"]
    lines = told(tmp_path, t, t.sample(0), ["t(&m, 0, 16, 32, 65535)", "t(&m, 0, 16, 32, 65536)"], 3)
    assert [x.split()[2:5] for x in lines if x.startswith("launch")] == [["1", "65535", "1"]]
    assert lines[-4:-2] == ["0", "-2"]


def test_strides_and_updated_arrays_are_declared_and_checked(tmp_path: Path) -> None:
    text = """
use std.gpu.targets.{sm_80}
compute scaled(Y: f32[M, 4], X: f32[M, 4]) -> Z: f32[M, 4] updates Y, W: f32[M, 4] strides [1, S] {
    Z[i, j] = Y[i, j] + X[i, j]
    W[i, j] = X[i, j]
}
schedule rows for scaled {
    for s in [Z, W] {
        let [i, j] = s.loops
        bind(i, "block.x")
        bind(j, "thread.x")
    }
}
task t = scaled(M=10, S=1..100) with rows
"""
    (tmp_path / "t.tsched").write_text(text)
    t = td.load(tmp_path / "t.tsched", target="sm_80")["t"]
    lines = told(tmp_path, t, t.sample(0), [f"t(&m, 0, 16, 32, 48, {s})" for s in (10, 9, 100)], 3)
    assert [x for x in lines if x.lstrip("-").isdigit()] == ["0", "0", "-4", "0", "0"]  # load, calls, unload
    header = (tmp_path / "t.h").read_text()
    for argument in ("Y: input and output, f32[10, 4]", "X: input, f32[10, 4]", "W: output, f32[10, 4] strides [1, S]"):
        assert f"   {argument}\n" in header
