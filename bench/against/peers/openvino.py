"""OpenVINO's CPU plugin: a model of the operator compiled for latency, arrays bound once.

A product of bf16 is one of f32 that the plugin may compute in bf16; a product of bytes is one of quantized values.
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
    if model is None:
        return None
    ov: Any = import_module("openvino")
    core = ov.Core()
    told = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": job.threads, "INFERENCE_PRECISION_HINT": kind}
    if job.problem.compute == "matmul_u8i8":
        read = _quantized(ov, *job.take("A", "B"))
    else:
        read = core.read_model(model=BytesIO(model.bytes(np.dtype(np.float32))))
    request = core.compile_model(read, "CPU", told).create_infer_request()
    for name, array in model.feeds.items():
        request.set_tensor(name, ov.Tensor(array, shared_memory=True))

    def result() -> Array:
        return model.back(request.get_output_tensor().data)

    return Ready(request.infer, result)


def _quantized(ov: Any, a: Array, b: Array) -> Any:
    """A · B as in a quantized network, in which each byte stands for its own value, so that the plugin multiplies bytes.

    It would compute ONNX's MatMulInteger in f32. The result is in f32.
    """
    op: Any = import_module("openvino.opset13")
    x = op.parameter(a.shape, a.dtype)
    x.output(0).set_names({"A"})
    sides = [op.convert(x, "f32"), op.constant(b.astype(np.float32))]
    ranges = [
        tuple(op.constant(np.float32(bound)) for bound in (i.min, i.max)) for i in map(np.iinfo, (a.dtype, b.dtype))
    ]
    made = [op.fake_quantize(side, *range_, *range_, 256) for side, range_ in zip(sides, ranges, strict=True)]
    return ov.Model([op.result(op.matmul(*made, False, False))], [x], "quantized")
