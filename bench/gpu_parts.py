"""The parts of `bench.gpu`, each for a process of its own: `python -m bench.gpu_parts proofs 60` prints lines of JSON."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path

import msgspec
import numpy as np

from bench.gpu_calibration import calibration
from bench.gpu_case import Asked, CannotRun, Part, Row, arrays_of, by_turns, device, loaded, task_of
from bench.gpu_instructions import instructions
from bench.gpu_torch import torch_beside
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.processes.boot import die_with
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.tuning.measure.outcome import Status

CANNOT = 2
"""The status of a part that lacks a tool or time; any other is that of a fault."""

DRAWS = 4
"""The schedules of each small task."""

SMALL = {
    "matmul f32": "matmul(M=64, N=48, K=40)",
    "matmul f16": "matmul(M=64, N=64, K=32, T=f16, Acc=f32)",
    "matmul bf16": "matmul(M=64, N=64, K=32, T=bf16, Acc=f32)",
    "matmul i8": "matmul(M=64, N=48, K=40, T=i8, Acc=i32)",
    "matmul f64": "matmul(M=64, N=48, K=40, T=f64)",
    "batch_matmul": "batch_matmul(G=3, M=32, N=32, K=16)",
    "conv2d": "conv2d_nhwc(N=1, H=14, W=14, CI=16, KH=3, KW=3, CO=32, pad=1)",
    "depthwise": "depthwise_conv2d_nhwc(N=1, H=14, W=14, C=16, KH=3, KW=3, pad=1)",
    "softmax": "softmax(M=16, N=200)",
    "layer_norm": "layer_norm(M=16, N=200)",
    "attention": "attention(B=1, H=2, M=32, N=32, D=16, E=16)",
    "argmax": "argmax(M=16, N=200)",
    "cumsum": "cumsum(N=16, M=64)",
    "transpose": "transpose(M=70, N=50)",
}


def proofs(asked: Asked) -> Iterator[Row]:
    """Draws of each small task against the reference, in a worker that a fault ends: one of each, then another one."""
    device()
    for name, text, seed in ((f"{name} {seed}", text, seed) for seed in range(DRAWS) for name, text in SMALL.items()):
        if not asked.begins(name):
            continue
        try:
            task = task_of(text)
            found = task.measure(task.sample(seed))
        except TschedError as e:
            yield Row(name, wrong=str(e))
            continue
        right = found.status is Status.OK
        yield Row(name, "" if right else f"{found.status}: {found.message}", found.seconds)


def sanitizer(asked: Asked) -> Iterator[Row]:
    """Each draw under the tools of compute-sanitizer."""
    device()
    checker = shutil.which("compute-sanitizer")
    if checker is None:
        raise CannotRun("there is no `compute-sanitizer` on PATH; it is part of the CUDA toolkit")
    for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
        for name in SMALL:
            if not asked.begins(f"{name} {tool}"):
                continue
            own = [sys.executable, "-m", "bench.gpu_parts", "once", name]
            command = [checker, "--tool", tool, "--error-exitcode", "9", *own]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=max(asked.left, 0.0) + 60, check=False
                )
                words = [line for line in done.stdout.splitlines() if "=====" in line and line.strip("= ")]
                yield Row(f"{name} {tool}", "" if not done.returncode else "; ".join(words[:3]) or done.stderr[-200:])
            except subprocess.TimeoutExpired:
                yield Row(f"{name} {tool}", "it did not end in time")


def once(name: str) -> None:
    """Run one draw of a small task, for the sanitizer to watch."""
    task = task_of(SMALL[name])
    inputs = make_inputs(task.program, 0)
    loaded(task, task.compile(task.sample(0)))(*inputs.values())


def nvcc(asked: Asked) -> Iterator[Row]:
    """Our PTX beside nvcc's of the same statements."""
    device()
    compiler = shutil.which("nvcc")
    if compiler is None:
        raise CannotRun("there is no `nvcc` on PATH; `pip install nvidia-cuda-nvcc` or the CUDA toolkit has one")
    for name, (text, space) in COMPARED.items():
        if not asked.begins(name):
            continue
        try:
            task = task_of(text, space=space)
            compiled = task.compile(task.sample(1))
            ptx = _by_nvcc(compiler, compiled.view("cuda"), task.target.cpu)
            ours, theirs = loaded(task, compiled), loaded(task, compiled, ptx)
            mine, yours = arrays_of(task), arrays_of(task)
            times = by_turns(lambda n, k=ours, a=mine: k.time(a, n), lambda n, k=theirs, a=yours: k.time(a, n))
            same = all(np.allclose(x, y, rtol=1e-3, atol=1e-3) for x, y in zip(mine, yours, strict=True))
            yield Row(name, "" if same else "the results differ", *times, "nvcc")
        except (TschedError, subprocess.SubprocessError) as e:
            yield Row(name, str(e))


def _by_nvcc(compiler: str, text: str, cpu: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "view.cu"), Path(folder, "view.ptx")
        source.write_text(text, encoding="utf-8")
        subprocess.run([compiler, f"-arch={cpu}", "-ptx", "-o", str(made), str(source)], check=True, timeout=120)
        return made.read_text(encoding="utf-8")


COMPARED = {
    "matmul f32": ("matmul(M=512, N=512, K=512)", "default"),
    "matmul f16": ("matmul(M=512, N=512, K=512, T=f16, Acc=f32)", "hopper"),
    "matmul bf16": ("matmul(M=512, N=512, K=512, T=bf16, Acc=f32)", "tensor_core"),
    "matmul i8": ("matmul(M=512, N=512, K=512, T=i8, Acc=i32)", "default"),
    "matmul f64": ("matmul(M=512, N=512, K=512, T=f64)", "default"),
    "batch_matmul": ("batch_matmul(G=16, M=256, N=256, K=64)", "default"),
    "conv2d": ("conv2d_nhwc(N=1, H=56, W=56, CI=64, KH=3, KW=3, CO=64, pad=1)", "default"),
    "softmax": ("softmax(M=1024, N=1024)", "default"),
    "layer_norm": ("layer_norm(M=1024, N=1024)", "default"),
    "transpose": ("transpose(M=1024, N=1024)", "default"),
}
"""Ten kernels, long enough to be timed."""


PARTS = {
    "instructions": Part(instructions, 2.5),
    "cal": Part(calibration, 1.5),
    "proofs": Part(proofs, 1.0),
    "torch": Part(torch_beside, 6.0),
    "nvcc": Part(nvcc, 0.5),
    "sanitizer": Part(sanitizer, 1.5),
}
"""The parts, the most important first."""


def main() -> int:
    """Run a part, `NAME SECONDS [DONE [MOST]]`, where DONE is a list in JSON of cases to leave out, and MOST how many others
    there may be; or `once NAME`."""
    name, value, *done = sys.argv[1:]
    die_with(os.getppid())
    if name == "once":
        once(value)
        return 0
    try:
        known = frozenset(msgspec.json.decode(done[0], type=list[str]) if done else ())
        most = float(done[1]) if len(done) > 1 else inf
        for row in PARTS[name].run(Asked(time.monotonic() + float(value), known, most)):
            print(msgspec.json.encode(row).decode(), flush=True)
    except CannotRun as e:
        print(e, file=sys.stderr)
        return CANNOT
    return 0


if __name__ == "__main__":
    sys.exit(main())
