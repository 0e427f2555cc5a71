"""ONNX Runtime's CPU provider: a model of the operator with its weights inside, arrays bound once."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from bench.against.onnx_models import model_of
from bench.against.problem import Array, Job, Ready


def prepare(job: Job) -> Ready | None:
    model = model_of(job)
    if model is None:
        return None
    ort: Any = import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    result = np.dtype(np.int32 if job.problem.compute == "matmul_u8i8" else np.float32)
    session = ort.InferenceSession(model.bytes(result), options, providers=["CPUExecutionProvider"])
    (first,) = session.run(None, model.feeds)
    (name,) = (o.name for o in session.get_outputs())
    output = ort.OrtValue.ortvalue_from_numpy(first)
    binding = session.io_binding()
    for feed, array in model.feeds.items():
        binding.bind_ortvalue_input(feed, ort.OrtValue.ortvalue_from_numpy(array))
    binding.bind_ortvalue_output(name, output)

    def result_() -> Array:
        return model.back(output.numpy())

    return Ready(lambda: session.run_with_iobinding(binding), result_)
