"""TVM: MetaSchedule's default space and evolutionary search, with as many trials as ours, on the computes of its own suite.

Its records are in a folder beside ours; a task with a record is not tuned again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from bench.against.metaschedule import times_of
from bench.against.problem import CONVOLUTIONS, Array, Job, Ready

tvm: Any = import_module("tvm")
te: Any = import_module("tvm.te")
ms: Any = import_module("tvm.s_tir.meta_schedule")
suite: Any = import_module("tvm.s_tir.meta_schedule.testing.te_workload")

RECORDS = "database_tuning_record.json"

PATIENCE = 180
"""The time limit of a builder or a runner in seconds: its imports alone took the default of 30 s."""


def prepare(job: Job, warm_up: int | None = None) -> Ready | None:
    """The job, tuned with batches of `warm_up` trials and a model that is asked after the first; by default as TVM has it."""
    make = MAKERS.get(job.problem.compute)
    if make is None or "bf16" in job.problem.types.values():
        return None
    tensors = make(job)
    function = te.create_prim_func(list(tensors))
    host = tvm.target.codegen.llvm_get_system_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": host, "num-cores": job.threads})
    tuned = _tuned(job, function, target, warm_up)
    kernel = tvm.compile(tuned.schedule.mod, target)["main"]
    shapes = [tuple(map(int, t.shape)) for t in tensors]
    arrays = [a.reshape(s) for a, s in zip(job.inputs.values(), shapes, strict=False)]
    *given, out = (tvm.runtime.tensor(a) for a in (*arrays, np.zeros(shapes[-1], np.float32)))

    def result() -> Array:
        return out.numpy()

    return Ready(lambda: kernel(*given, out), result, tuned.note, tuned.searched, tuned.tried)


@dataclass(frozen=True, slots=True)
class _Tuned:
    """The best schedule, recorded or found by a search of so many `seconds`; `tried` are the times of its trials."""

    schedule: Any
    note: str
    searched: float | None = None
    tried: tuple[float | None, ...] = ()


def _tuned(job: Job, function: Any, target: Any, warm_up: int | None) -> _Tuned:
    folder = job.records.parent / f"{job.records.stem}.tvm{warm_up or ''}" / job.problem.task
    folder.mkdir(parents=True, exist_ok=True)
    found = ms.tir_integration.compile_tir(ms.database.JSONDatabase(work_dir=str(folder)), function, target)
    if found is not None:
        return _Tuned(found, "recorded")
    begun = time.perf_counter()
    model = "xgb"
    if warm_up is not None:
        model = ms.cost_model.XGBModel(num_warmup_samples=warm_up, num_tuning_cores=job.threads)
    database = ms.tune_tir(
        function,
        target,
        str(folder),
        job.trials,
        num_trials_per_iter=min(job.trials, warm_up or 64),
        cost_model=model,
        builder=ms.builder.LocalBuilder(max_workers=job.threads, timeout_sec=PATIENCE),
        runner=ms.runner.LocalRunner(timeout_sec=PATIENCE),
        num_tuning_cores=job.threads,
        seed=job.seed,
    )
    found = ms.tir_integration.compile_tir(database, function, target)
    if found is None:
        raise RuntimeError(f"none of {job.trials} candidates is valid")
    seconds = time.perf_counter() - begun
    return _Tuned(found, f"{job.trials} trials", seconds, times_of(folder / RECORDS))


Make = Callable[[Job], tuple[Any, ...]]


def _sized(f: Callable[..., Any], *names: str) -> Make:
    """A compute of the suite, from sizes of the task."""
    return lambda job: f(*(int(job.problem.bindings[n]) for n in names))


def _conv(job: Job) -> tuple[Any, ...]:
    p = job.problem
    told = {
        "stride": p.attribute("stride", 1),
        "padding": p.attribute("pad", 0),
        "dilation": p.attribute("dilation", 1),
    }
    make, sizes, kernel, more = {
        "conv1d_nlc": (suite.conv1d_nlc, "N L CI CO", "KL", ("groups",)),
        "conv2d_nhwc": (suite.conv2d_nhwc, "N H W CI CO", "KH", ("groups",)),
        "conv3d_ndhwc": (suite.conv3d_ndhwc, "N D H W CI CO", "KH", ("groups",)),
        "depthwise_conv2d_nhwc": (suite.depthwise_conv2d_nhwc, "N H W C", "KH", ()),
    }[p.compute]
    told.update({name: p.attribute(name, 1) for name in more})
    return make(*(int(p.bindings[n]) for n in (*sizes.split(), kernel)), **told)


def _conv_transpose(job: Job) -> tuple[Any, ...]:
    p = job.problem
    sizes = (int(p.bindings[n]) for n in "N H W CI CO KH".split())
    return suite.conv2d_transpose_nhwc(*sizes, stride=p.attribute("stride", 1), padding=p.attribute("pad", 0))


def _conv_bn_relu(job: Job) -> tuple[Any, ...]:
    p = job.problem
    sizes = (int(p.bindings[n]) for n in "N H W CI CO KH".split())
    x, f, bias, offset, scale, y = suite.conv2d_nhwc_bn_relu(*sizes, p.attribute("stride", 1), p.attribute("pad", 0))
    return x, f, bias, scale, offset, y


MAKERS: dict[str, Make] = {
    "matmul": _sized(suite.matmul, "M", "N", "K"),
    "batch_matmul": _sized(suite.batch_matmul_nkkm, "G", "M", "N", "K"),
    "transpose_batch_matmul": _sized(suite.transpose_batch_matmul, "B", "L", "H", "D"),
    **dict.fromkeys(CONVOLUTIONS, _conv),
    "conv2d_transpose_nhwc": _conv_transpose,
    "conv2d_bn_relu_nhwc": _conv_bn_relu,
    "norm_bmn": _sized(suite.norm_bmn, "B", "M", "N"),
    "softmax": _sized(suite.softmax_mn, "M", "N"),
}
"""The operators of TVM's suite."""
