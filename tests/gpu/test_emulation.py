"""The emulation finds what is wrong with a kernel: races, barriers that threads do not share, accesses out of bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower import lower
from tensorc_dsl.backend.cuda.lower.kernels import (
    THREAD,
    Barrier,
    Device,
    DeviceKernel,
    DeviceProgram,
    Guard,
    Local,
    Phase,
    Shared,
    Steps,
)
from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.backend.protocol import ORDERS
from tensorc_dsl.faces.api import loads
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import ONE, Compare, Const, Expr, Load, Var, add, index, mul, sub
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import If, Loop, Param
from tests.stdlib.gpu_checks import task

T = Var(THREAD)
B = Var("block.x")
N = 8


def kernel(*body: Device, blocks: int = 1, threads: int = N) -> DeviceProgram:
    """A kernel on an array X of 16 numbers, and with S of 8 in shared memory."""
    shared = (Shared("S", F32, N, 0),)
    k = DeviceKernel("k", (index(blocks), ONE, ONE), threads, ("X",), frozenset(("X",)), (), shared, 128, body)
    return DeviceProgram("k", (Param("X", F32, (index(2 * N),), True),), (), (), (k,))


def run(p: DeviceProgram, order: str = "forward") -> tuple[str, np.ndarray]:
    x = aligned_empty((2 * N,), np.dtype(np.float32))
    x[...] = np.arange(2 * N)
    return emulation(p).run({"X": x}, {}, order), x


def put(buffer: str, at: Expr, value: Expr) -> Phase:
    return Phase((Store(buffer, (at,), value),))


def get(buffer: str, at: Expr) -> Load:
    return Load(buffer, (at,), F32)


FILL = put("S", T, get("X", T))
TURN = put("X", T, get("S", sub(index(N - 1), T)))


@pytest.mark.parametrize("order", ORDERS)
def test_threads_that_do_not_wait_race_in_every_order(order: str) -> None:
    fault, _ = run(kernel(FILL, TURN), order)
    assert "meet without a barrier between them at element" in fault and "of `S` in `S[thread] = X[thread]`" in fault
    fault, x = run(kernel(FILL, Barrier(), TURN), order)
    assert fault == ""
    np.testing.assert_array_equal(x[:N], np.arange(N)[::-1])


def test_a_race_that_does_not_show_in_the_result_is_found() -> None:
    """All threads write the same number."""
    fault, x = run(kernel(put("X", index(0), Const(7.0, F32))))
    assert x[0] == 7 and fault.startswith("in `k`, thread 1 of block 0 and thread 0 meet without a barrier")
    assert fault.endswith("(7 faults)")


def test_reads_before_a_write_of_another_thread_are_found() -> None:
    read = put("X", T, get("S", index(0)))
    write = Phase((If(Compare("==", T, index(3)), (Store("S", (index(0),), Const(1.0, F32)),)),))
    assert "thread 3 of block 0" in (fault := run(kernel(read, write))[0]) and "meet without" in fault
    assert run(kernel(read, Barrier(), write))[0] == ""


def test_blocks_are_never_ordered() -> None:
    """Two blocks write one element, each in a thread of the same number; shared memory is each block's own."""
    fault, _ = run(kernel(put("X", T, Const(1.0, F32)), blocks=2))
    assert "of block 0" in fault and "block 1" in fault
    assert run(kernel(put("S", T, Const(1.0, F32)), blocks=2))[0] == ""
    assert run(kernel(put("X", add(T, mul(B, index(N))), Const(1.0, F32)), blocks=2))[0] == ""


@pytest.mark.parametrize("at", [add(T, index(N + 1)), sub(T, ONE)])
def test_an_access_out_of_bounds_is_told_and_not_made(at: Expr) -> None:
    fault, _ = run(kernel(put("X", at, Const(-1.0, F32))))
    assert "which is out of bounds" in fault and "of `X` in `X[" in fault
    fault, _ = run(kernel(put("X", T, get("S", at))))
    assert "of `S`" in fault and "which is out of bounds" in fault


def test_a_vector_that_leaves_an_array_is_told() -> None:
    def lanes(first: int) -> Phase:
        store = Store("X", (add(Var("v"), index(first)),), Const(1.0, F32))
        guard = Compare("==", T, index(0))
        return Phase((If(guard, (Loop("v", index(0), index(4), LoopKind.VECTORIZED, (store,)),)),))

    assert run(kernel(lanes(12)))[0] == ""
    assert "out of bounds" in run(kernel(lanes(13)))[0]


def test_barriers_in_divergent_code_are_told() -> None:
    some = Guard(Compare("<", T, index(3)), (Barrier(),))
    assert "come to different barriers" in run(kernel(some, FILL))[0]
    turns = Steps("n", T, (Barrier(),))
    assert "come to different barriers" in run(kernel(turns))[0]
    both = (Guard(Compare("<", T, index(3)), (Barrier(),)), Guard(Compare(">=", T, index(3)), (Barrier(),)))
    assert "come to different barriers" in run(kernel(*both))[0]


def test_shared_memory_has_no_numbers_at_the_start_of_a_block() -> None:
    _, x = run(
        kernel(put("X", add(T, mul(B, index(N))), get("S", T)), Barrier(), put("S", T, Const(1.0, F32)), blocks=2)
    )
    assert np.isnan(x).all()


def test_private_memory_is_a_threads_own() -> None:
    p = kernel(put("L", index(0), get("X", T)), Barrier(), put("X", sub(index(2 * N - 1), T), get("L", index(0))))
    (k,) = p.kernels
    fault, x = run(replace(p, kernels=(replace(k, local=(Local("L", F32, 1),)),)))
    assert fault == ""
    np.testing.assert_array_equal(x[N:], np.arange(N)[::-1])


def test_run_tells_what_is_wrong_with_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    t = task(tmp_path, "matmul(M=32, N=32, K=32)")
    command = ["run", str(tmp_path / "t.tsched"), "t", "--emulate"]
    right = CliRunner().invoke(main, command)
    assert right.exit_code == 0 and "the result is right" in right.output
    monkeypatch.setattr(lower, "synchronized", lambda kernel: kernel)
    wrong = CliRunner().invoke(main, command)
    assert wrong.exit_code == 1
    assert "error[E0908]: the schedule makes a kernel that is wrong: in `t_0`, thread " in wrong.output
    assert "meet without a barrier between them at element" in wrong.output and "; threads forward" in wrong.output
    assert t.emulate(t.sample(0)).fault
    refused = CliRunner().invoke(main, [*command, "--json"])
    assert refused.exit_code == 2 and "`--emulate` takes none" in refused.output


EMPTY = """
use std.gpu.targets

compute f(A: f32[M, N], B: f32[M]) -> C: f32[M, N], D: f32[M] {
    C[i, j] = A[i, j] + 1.0
    D[i] = B[i] * 2.0
}

schedule threads for f {
    let [i, j] = C.loops
    bind(j, "thread.x")
    let [k] = D.loops
    bind(k, "block.x")
}

schedule both for f {
    let [i, j] = C.loops
    bind(i, "block.x")
    bind(j, "thread.x")
}

schedule plane for f {
    let [i, j] = C.loops
    bind(i, "thread.y")
    bind(j, "thread.x")
}

schedule warps for f {
    let [i, j] = C.loops
    bind(i, "warp")
    bind(j, "lane")
}
"""


@pytest.mark.corpus
@pytest.mark.parametrize("schedule", ["threads", "both", "plane", "warps"])
@pytest.mark.parametrize(("m", "n"), [(0, 0), (0, 5), (3, 0), (3, 5)])
def test_a_loop_without_iterations_may_be_bound(schedule: str, m: int, n: int) -> None:
    """A block of no threads, or a grid of no blocks: in its emulation the process ended by a signal."""
    text = f"{EMPTY}\ntask t = f(M={m}, N={n}) with {schedule}"
    found = loads(text, target="sm_80")["t"]
    emulated = found.emulate(found.sample(0))
    assert emulated.fault == ""
