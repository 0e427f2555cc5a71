"""OpenVINO's CPU plugin: a model of the operator compiled for latency, arrays bound once.

A product of bf16 is one of f32 that may be computed in bf16, as the plugin does it.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from io import BytesIO
from typing import Any

import msgspec
import numpy as np

from bench.against.onnx_models import model_of
from bench.against.problem import Array, Job, Ready, as_float32


def prepare(job: Job) -> Ready | None:
    kind = "bf16" if "bf16" in job.problem.types.values() else "f32"
    if kind == "bf16":
        problem = msgspec.structs.replace(job.problem, types=dict.fromkeys(job.inputs, "f32"))
        job = replace(job, problem=problem, inputs={n: as_float32(a) for n, a in job.inputs.items()})
    model = model_of(job)
    # MatMulInteger is converted to a product of f32.
    if model is None or job.problem.compute == "matmul_u8i8":
        return None
    ov: Any = import_module("openvino")
    core = ov.Core()
    told = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": job.threads, "INFERENCE_PRECISION_HINT": kind}
    read = core.read_model(model=BytesIO(model.bytes(np.dtype(np.float32))))
    request = core.compile_model(read, "CPU", told).create_infer_request()
    for name, array in model.feeds.items():
        request.set_tensor(name, ov.Tensor(array, shared_memory=True))

    def result() -> Array:
        return model.back(request.get_output_tensor().data)

    return Ready(request.infer, result)
