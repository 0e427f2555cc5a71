"""`std.gpu.default`: its draws are right, fit the machine, and use threads and shared memory as its rules say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tensorc_dsl as td
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import For, Program, walk
from tensorc_dsl.schedule.trace.handlers import condition
from tests.programs import random_inputs
from tests.stdlib.gpu_checks import check, task, traces


def _matmul(a: Array, b: Array) -> Array:
    return a.astype(np.float64) @ b.astype(np.float64)


def _batched(a: Array, w: Array) -> Array:
    return np.einsum("bik,bkj->bij", a.astype(np.float64), w.astype(np.float64))


def _layer_norm(x: Array, g: Array, b: Array) -> Array:
    x = x.astype(np.float64)
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * g + b


def _conv2d(x: Array, f: Array) -> Array:
    """The sum over windows of 3 by 3, with zeros around the images."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.einsum("nhwcij,ijco->nhwo", windows, f.astype(np.float64))


def _softmax(x: Array) -> Array:
    powers = np.exp(x.astype(np.float64))
    return powers / powers.sum(1, keepdims=True)


CASES: dict[str, tuple[str, Callable[..., Array]]] = {
    "matmul": ("matmul(M=16, N=24, K=8)", _matmul),
    "matmul odd": ("matmul(M=13, N=7, K=11)", _matmul),
    "matmul half": ("half_matmul(M=16, N=8, K=16)", _matmul),
    "matmul bf16": ("half_matmul(M=12, N=9, K=5, T=bf16)", _matmul),
    "batched": ("batched(B=3, M=6, N=8, K=5)", _batched),
    "conv2d": ("conv2d_nhwc(N=1, H=4, W=3, CI=2, KH=3, KW=3, CO=4, pad=1)", _conv2d),
    "softmax": ("softmax(M=5, N=41)", _softmax),
    "layer norm": ("layer_norm(M=3, N=34)", _layer_norm),
    "argmax": ("argmax(M=3, N=10)", lambda x: x.argmax(1)),
    "scan": ("cumsum(N=6, M=9)", lambda x: x.astype(np.float64).cumsum(0)),
    "one number": ("total(M=7, N=9)", lambda x: x.astype(np.float64).sum()),
    "a single value": ("next()", lambda x: x + 1.0),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_schedules_compute_what_the_task_does(case: str, tmp_path: Path) -> None:
    text, reference = CASES[case]
    t = task(tmp_path, text)
    inputs = random_inputs(t.program)
    for trace in traces(t, 3):
        check(t, trace, inputs, reference(*inputs.values()))


def loops(program: Program) -> list[For]:
    return [s for _, s in walk(program.body) if isinstance(s, For)]


def test_a_large_product_has_blocks_of_warps_and_tiles_in_shared_memory(tmp_path: Path) -> None:
    t = task(tmp_path, "matmul(M=1024, N=1024, K=512)")
    for trace in traces(t.drawn_from(condition(t.model, {"in_parts": False, "streamed": False})), 3):
        threads = {x.extent for x in loops(trace.program) if str(x.axis) == "thread.x"}
        assert len(threads) == 1
        assert {b.name: b.scope for b in trace.program.buffers} == {
            "C_local": "local", "A_shared": "shared", "B_shared": "shared"
        }  # fmt: skip


def test_threads_reduce_together_in_some_schedules_and_alone_in_others(tmp_path: Path) -> None:
    t = task(tmp_path, "total(M=64, N=64)")
    scopes = {tuple(sorted({b.scope for b in x.program.buffers})) for x in traces(t, 12)}
    assert {(), ("shared",), ("warp",), ("shared", "warp")} >= scopes and len(scopes) > 2


def test_open_sizes_are_bound_to_blocks(tmp_path: Path) -> None:
    t = task(tmp_path, "matmul(M=1..64, N=33, K=16)")
    for trace in traces(t, 3):
        assert str(loops(trace.program)[0].axis) == "block.x"


def test_tiles_that_do_not_fit_the_machine_are_left_out_and_told_with_the_numbers(tmp_path: Path) -> None:
    (tmp_path / "small.tsched").write_text(
        "use std.ops.{matmul}\nuse std.gpu.default\n"
        "target small = cuda(threads=64, shared_memory=64, registers=4096)\n"
        "task t = matmul(M=256, N=256, K=256)\n"
    )
    trace = td.load(tmp_path / "small.tsched")["t"].sample(0)
    (refused,) = trace.refused
    assert (refused.rule, refused.subject) == ("multi_level_tiling", "C")
    assert str(refused.refusal).startswith("E0508: `j` runs 256 times: no tile of 5 parts makes 256")
    assert [str(x.axis) for x in loops(trace.program)[:2]] == ["block.x", "thread.x"]


def test_commands_show_a_program_for_a_gpu(tmp_path: Path) -> None:
    t = task(tmp_path, "softmax(M=8, N=64)")
    shown = CliRunner().invoke(main, ["show", str(tmp_path / "t.tsched"), "t", "--stage", "ir", "--scheduled"])
    assert shown.exit_code == 0, shown.output
    assert parse_program(Source("shown", shown.stdout)).body
    assert 'bound("block.x") for' in shown.stdout
    for command in (["tune"], ["run"]):
        refused = CliRunner().invoke(main, [command[0], str(tmp_path / "t.tsched"), t.name, *command[1:]])
        assert refused.exit_code == 1
        assert "error[E0918]" in refused.output, refused.output
