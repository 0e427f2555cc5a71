"""Runners: programs that make inputs, run a kernel, write what it computes and print its times."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from campaigns.processors import PROCESSORS, RUNNER, judged, missing
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import load, loads
from tests.ahead.made import HERE, export, needs_compiler

Array = NDArray[Any]


def words(seed: int) -> Iterator[int]:
    """The words of splitmix64."""
    every = 2**64 - 1
    while True:
        seed = seed + 0x9E3779B97F4A7C15 & every
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & every
        z = (z ^ z >> 27) * 0x94D049BB133111EB & every
        yield z ^ z >> 31


def seeded(seed: int, **arrays: tuple[str, tuple[int, ...]]) -> dict[str, Array]:
    """What a runner makes of a seed, as numbers; floats by the bits of their fractions."""
    stream = words(seed)
    fractions = {"f32": 23, "f64": 52, "bf16": 7, "f16": 10}

    def element(kind: str) -> float:
        z = next(stream)
        if kind in fractions:
            return (z >> (63 - fractions[kind])) / 2 ** fractions[kind] - 1
        return z % 10 if kind.startswith("u") else z % 19 - 9

    return {
        name: np.array([element(kind) for _ in range(int(np.prod(shape)))]).reshape(shape)
        for name, (kind, shape) in arrays.items()
    }


def ran(runner: Path, *arguments: str, status: int = 0) -> Any:
    """What a runner prints as JSON, or what it says if it ends with another status."""
    done = subprocess.run([runner, *arguments], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout) if status == 0 else done.stderr


def product(x: Mapping[str, Array]) -> list[Array]:
    return [x["A"] @ x["B"]]


def pairs(x: Mapping[str, Array]) -> list[Array]:
    n = x["X"].size // 2
    return [x["X"][::2] + x["X"][1::2] + x["Z"][x["Z"].size - n :]]


Given = dict[str, tuple[str, tuple[int, ...]]]
CASES: dict[str, tuple[tuple[str, ...], Given, Callable[[Mapping[str, Array]], list[Array]], str]] = {
    "mm": ((), {"A": ("f32", (24, 16)), "B": ("f32", (16, 48))}, product, "<f4"),
    "mm_any": (("M=13",), {"A": ("f32", (13, 16)), "B": ("f32", (16, 48))}, product, "<f4"),
    "mm_any one row": (("M=1",), {"A": ("f32", (1, 16)), "B": ("f32", (16, 48))}, product, "<f4"),
    "byte_product": ((), {"A": ("u8", (5, 7)), "B": ("i8", (7, 16))}, product, "<i4"),
    "paired": (("M=3", "N=7"), {"X": ("f32", (14,)), "Z": ("f32", (10,))}, pairs, "<f4"),
    "weighted_any": (
        ("N=5", "M=3", "K=7"),
        {"A": ("f32", (3, 7)), "W": ("f32", (7, 5))},
        lambda x: [x["A"] @ (x["W"] * x["W"])],
        "<f4",
    ),
    "biased": (
        ("M=11",),
        {"A": ("i8", (11, 37)), "W": ("i8", (37, 29)), "b": ("i32", (29,)), "prepared": ("f32", ())},
        lambda x: [(x["A"] @ x["W"] + x["b"]) * x["prepared"]],
        "<f4",
    ),
}


@pytest.mark.corpus
@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_a_runner_computes_what_numpy_does(case: str, tmp_path: Path) -> None:
    sizes, given, expected, dtype = CASES[case]
    runner, output = export(tmp_path, case.partition(" ")[0], "runner"), tmp_path / "output"
    for seed in (0, 2**64 - 1):
        said = ran(runner, *sizes, "--seed", str(seed), "--output", str(output), "--seconds", "0")
        assert said["seed"] == seed
        assert sorted(f"{n}={v}" for n, v in said["sizes"].items()) == sorted(sizes)
        found, wanted = np.fromfile(output, dtype), expected(seeded(seed, **given))
        np.testing.assert_allclose(found, np.concatenate([x.ravel() for x in wanted]), rtol=1e-5, atol=1e-5)


@needs_compiler
def test_narrow_floats_are_made_as_their_bits(tmp_path: Path) -> None:
    runner, output = export(tmp_path, "bf16_twice", "runner"), tmp_path / "output"
    ran(runner, "N=97", "--seed", "5", "--output", str(output), "--seconds", "0")
    found = (np.fromfile(output, "<u2").astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(found, 2 * seeded(5, X=("bf16", (97,)))["X"])


@needs_compiler
def test_times_and_inputs_of_a_file(tmp_path: Path) -> None:
    runner, inputs, output = export(tmp_path, "mm", "runner"), tmp_path / "inputs", tmp_path / "output"
    x = {n: a.astype(np.float32) for n, a in seeded(7, A=("f32", (24, 16)), B=("f32", (16, 48))).items()}
    data = x["A"].tobytes() + x["B"].tobytes()
    inputs.write_bytes(data)
    read = ran(runner, "--inputs", str(inputs), "--output", str(output), "--seconds", "0.05")
    assert read["seed"] is None
    assert read["samples"] >= 1
    assert read["calls"] >= 1
    assert 0 < read["lower_quartile_ns"] <= read["median_ns"] <= read["upper_quartile_ns"]
    made, other = (ran(runner, "--seed", seed, "--seconds", "0") for seed in ("7", "8"))
    assert read["digest"] == made["digest"] != other["digest"]
    assert "median_ns" not in made
    for wrong, said in ((data[:-1], "too short"), (data + b"0", "too long")):
        inputs.write_bytes(wrong)
        assert said in ran(runner, "--inputs", str(inputs), status=1)


@needs_compiler
def test_samples_are_printed_in_order_and_a_slow_kernel_has_one(tmp_path: Path) -> None:
    runner = export(tmp_path, "mm", "runner")
    said = ran(runner, "--samples", "7", "--seconds", "5")
    assert said["samples"] == len(said["times_ns"]) == 7
    assert min(said["times_ns"]) <= said["lower_quartile_ns"] <= max(said["times_ns"])
    assert said["last"] == said["digest"]
    assert "times_ns" not in ran(runner, "--seconds", "0.01")
    assert ran(runner, "--samples", "9", "--best", "0.001")["samples"] == 1


@needs_compiler
def test_a_limit_ends_a_runner_by_a_signal(tmp_path: Path) -> None:
    runner = export(tmp_path, "mm", "runner")
    assert "SIGALRM" in signal.Signals(-ran_status(runner, "--limit", "1", "--seconds", "60")).name
    assert ran_status(runner, "--limit", "60", "--seconds", "0") == 0


def ran_status(runner: Path, *arguments: str) -> int:
    return subprocess.run([runner, *arguments], capture_output=True, check=False, timeout=300).returncode


@needs_compiler
def test_a_runner_says_how_it_is_used(tmp_path: Path) -> None:
    runner = export(tmp_path, "mm_any", "runner")
    for arguments in ("", "M=0", "M=4097", "M=", "N=3", "M=3 --seed", "M=3 --seed x", "M=3 -v 1", "M=3 --samples 0"):
        assert "M=N is needed, 1 to 4096" in ran(runner, *arguments.split(), status=2)
    assert "cannot read none" in ran(runner, "M=3", "--inputs", "none", status=1)
    assert "cannot write /none/there" in ran(runner, "M=3", "--output", "/none/there", status=1)


UPDATED = """
compute grown(X: f32[N], W: const f32[N], Y: f32[N]) -> Z: f32[N] updates Y {
    Z[i] = Y[i] + X[i] * W[i]
}

schedule serial for grown {}

task NAME = grown(N=11) with serial
"""
"""A task that overwrites an input."""


@needs_compiler
@pytest.mark.parametrize("name", ["sample", "data", "size", "memory", "bytes"])
def test_an_input_that_is_overwritten_by_a_task_with_a_name_of_the_runner(name: str, tmp_path: Path) -> None:
    task = loads(UPDATED.replace("NAME", name), threads=1)[name]
    task.export(task.sample(0), tmp_path / "it", "runner")
    said = ran(tmp_path / "it", "--output", str(tmp_path / "out"), "--seconds", "0.01")
    x = seeded(0, X=("f32", (11,)), W=("f32", (11,)), Y=("f32", (11,)))
    np.testing.assert_allclose(np.fromfile(tmp_path / "out", "<f4"), x["X"] * x["W"] + x["Y"], rtol=1e-6, atol=1e-6)
    assert said["digest"] == ran(tmp_path / "it", "--seconds", "0")["digest"]


def test_the_compiler_of_another_machine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    task = load(HERE / "targets.tsched", target="neon")["tiled"]
    for form in ("runner", "so"):
        with pytest.raises(TschedError, match=r"E0913.*no C compiler `aarch64-linux-gnu-gcc`"):
            task.library(task.sample(0)).make(form)


@needs_compiler
def test_what_candidates_share_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, calls = tmp_path / "compiler", tmp_path / "calls"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec cc "$@"\n', encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    task = loads("use std.cpu\nuse std.ops.{matmul}\ntask small = matmul(M=5, N=7, K=3)\n", threads=1)["small"]
    one, other = (task.library(task.sample(n)).make("runner") for n in (0, 1))
    assert one != other
    assert [" -r " in line for line in calls.read_text("utf-8").splitlines()] == [True, False, False]


ODD = """
use std.cpu
use std.ops.{softmax, layer_norm, conv2d_nhwc}

target machine = llvm(TARGET)

compute matmul(A: T[M, K], B: const T[K, N]; T: dtype = f32, Acc: dtype = T) -> C: Acc[M, N] {
    C[i, j] = sum[k] Acc(A[i, k]) * Acc(B[k, j])
}

compute quantized(X: f32[N]) -> Y: f8e4m3[N] {
    Y[i] = saturate(f8e4m3, X[i] * 100.0)
}

compute rounded(X: f32[M, N]) -> Y: i32[M, N], Z: f16[M, N] {
    Y[i, j] = i32(X[i, j] * 100.0)
    Z[i, j] = f16(exp(X[i, j]))
}

task one = matmul(M=1, N=1, K=1)
task odd = matmul(M=13, N=29, K=17)
task bf16_odd = matmul(M=7, N=31, K=19, T=bf16, Acc=f32)
task f16_odd = matmul(M=7, N=31, K=19, T=f16, Acc=f32)
task u8_odd = matmul(M=5, N=37, K=23, T=u8, Acc=i32)
task rows = softmax(M=5, N=41)
task norm = layer_norm(M=7, N=23)
task image = conv2d_nhwc(N=1, H=9, W=11, CI=5, CO=7, KH=3, KW=3, pad=1)
task octets = quantized(N=53)
task types = rounded(M=3, N=43)
"""


@pytest.mark.corpus
@pytest.mark.parametrize("draw", range(2))
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.skipif(missing(p) != "", reason=f"not installed: {missing(p)}"))
        for n, p in PROCESSORS.items()
    ],
)
def test_kernels_for_other_processors_are_right(name: str, draw: int) -> None:
    processor = PROCESSORS[name]
    found = loads(ODD.replace("TARGET", processor.target), target="machine")
    outcomes = {task.name: judged(task, processor, draw) for task in found.values()}
    assert {n: x for n, x in outcomes.items() if not x[0].startswith("right")} == {}


@pytest.mark.skipif(
    shutil.which("qemu-aarch64") is None or shutil.which("aarch64-linux-gnu-gcc") is None, reason="no QEMU"
)
def test_a_runner_for_aarch64_agrees_with_numpy(tmp_path: Path) -> None:
    text = ODD.replace("TARGET", PROCESSORS["cortex-a72"].target)
    task, output = loads(text, target="machine")["odd"], tmp_path / "output"
    task.export(task.sample(1), tmp_path / RUNNER, "runner")
    assert (tmp_path / RUNNER).read_bytes()[18:20] == b"\xb7\x00"  # EM_AARCH64
    command = ["qemu-aarch64", tmp_path / RUNNER, "--output", output, "--seconds", "0.01"]
    said = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=300).stdout)
    assert (said["cpu"], said["median_ns"] > 0) == ("cortex-a72", True)
    expected = product(seeded(0, A=("f32", (13, 17)), B=("f32", (17, 29))))[0]
    np.testing.assert_allclose(np.fromfile(output, "<f4").reshape(13, 29), expected, rtol=1e-5, atol=1e-5)
