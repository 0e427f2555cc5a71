"""How far models are from ONNX Runtime, and how long import, compilation and a call take.

`python -m bench.models.accuracy FILE…`, of ONNX files, with `--shape NAME=SIZES` where sizes are open. Floats are drawn from
[0, 1), integers from 0 to 1.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import tensorc_dsl
from tensorc_dsl.graph.graph import Array
from tensorc_dsl.tuning.measure.in_context import by_turns

SECONDS = 6.0
"""How long a model and ONNX Runtime are timed, by turns."""

onnxruntime: Any = import_module("onnxruntime")  # it has no types


def compared(path: Path, shapes: dict[str, tuple[int, ...]], threads: int) -> str:
    """A line about a file."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        file = tensorc_dsl.import_onnx(path, Path(folder) / "model.tsched", shapes=shapes)
        imported = time.perf_counter() - begin
        begin = time.perf_counter()
        model = tensorc_dsl.load_model(file, threads=threads)
        model.prepare()
        compiled = time.perf_counter() - begin
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        drawn = list(model.random_inputs().values())
        inputs = {
            i.name: np.abs(x) % 1 if x.dtype.kind == "f" else x
            for i, x in zip(session.get_inputs(), drawn, strict=True)
        }
        wanted = [np.asarray(w) for w in session.run(None, dict(inputs))]
        made = list(model.outputs_of(*inputs.values()).values())
        error = max(map(_relative, made, wanted))
        turns = by_turns([lambda: model(*inputs.values()), lambda: session.run(None, dict(inputs))], SECONDS)
        times = [median(t) for t in turns]
    return (
        f"{path.stem:16} error {error:.1e}, import {imported:.1f} s, {len(model.tasks)} tasks compiled in {compiled:.1f} s, "
        f"call {times[0] * 1e3:.1f} ms, ONNX Runtime {times[1] * 1e3:.1f} ms"
    )


def _relative(made: Array, wanted: Array) -> float:
    """The greatest difference, relative to the greatest value."""
    wide = wanted.astype(np.float64)
    return float(np.abs(made.astype(np.float64) - wide).max() / max(np.abs(wide).max(), 1e-30))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=SIZES")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    shapes = {n: tuple(map(int, s.split(","))) for n, s in (text.split("=") for text in args.shape)}
    for path in args.files:
        print(compared(path, shapes, args.threads), flush=True)


if __name__ == "__main__":
    main()
