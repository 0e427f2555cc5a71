"""What running a model costs beside its kernels: the arena beside its lower bound, and the time of a run beside its calls.

`python -m bench.models.running FILE…`, of ONNX files, with `--arena` to compile and run nothing. Without files it times a
model of 150 calls that do next to nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

import tensorc_dsl
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api.models import model_of
from tensorc_dsl.faces.packages import Resolver
from tensorc_dsl.graph.arena import Copy

CALLS = 150

ROUNDS = 15
"""How often a run and the sum of its calls are timed by turns; the shortest of each counts."""


def tiny(threads: int) -> str:
    """A line about a model of calls that take nanoseconds, run in native code and from Python."""
    lines = ["let v0 = neg(x)", *(f"let v{k} = neg(v{k - 1})" for k in range(1, CALLS - 1)), f"y = neg(v{CALLS - 2})"]
    text = "space plain for llvm {}\ncompute neg(X: f32[N]) -> Y: f32[N] { Y[i] = -X[i] }\n"
    text += "model m(x: f32[16]) -> y: f32[16] {\n" + "\n".join(lines) + "\n}\n"
    model = model_of(load_source(Source.of(text.encode(), "m.tsched"), Resolver("m.tsched", ())), "m", threads)
    x, y = np.zeros(16, np.float32), np.zeros(16, np.float32)
    task = model.tasks["neg"]
    kernel = task.replay(task.sample(0)).loaded
    alone = median(kernel.time((x, y), 20000))
    whole = median(model.runtime.calls.time((x, y), 2000)) / CALLS
    python = median(_python(lambda: model(x, y=y), 2000)) / CALLS
    ours = f"a call of the model {whole * 1e9:.0f} ns, from Python {python * 1e9:.0f} ns"
    return f"{CALLS} calls: {ours}, the kernel {alone * 1e9:.0f} ns"


def _python(call: Callable[[], object], repeats: int) -> list[float]:
    times: list[float] = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return times


def measured(path: Path, shapes: dict[str, tuple[int, ...]], threads: int, arena: bool) -> str:
    """A line about a file."""
    with tempfile.TemporaryDirectory() as folder:
        file = tensorc_dsl.import_onnx(path, Path(folder) / "model.tsched", shapes=shapes)
        model = tensorc_dsl.load_model(file, threads=threads)
        plan = model.arrangement
        computed = len([s for s in plan.steps if not isinstance(s, Copy)])
        share = plan.size / max(plan.bound, 1)
        line = f"{path.stem:14} {computed} calls, arena {plan.size / 1e6:.2f} MB, {share:.3f} of the bound"
        if arena:
            return line
        inputs = model.random_inputs()
        calls = model.runtime.calls
        arrays = list(inputs.values())
        rounds = [(calls.time(arrays, 1)[0], sum(calls.step_times(arrays, 1)[0])) for _ in range(ROUNDS)]
        whole, steps = (min(times) for times in zip(*rounds, strict=True))
        return f"{line}, a run {whole * 1e3:.2f} ms, {whole / steps:.3f} of the sum of its calls"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=SIZES")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--arena", action="store_true")
    args = parser.parse_args()
    shapes = {n: tuple(map(int, s.split(","))) for n, s in (text.split("=") for text in args.shape)}
    if not args.files:
        print(tiny(args.threads))
    for path in args.files:
        print(measured(path, shapes, args.threads, args.arena), flush=True)


if __name__ == "__main__":
    main()
