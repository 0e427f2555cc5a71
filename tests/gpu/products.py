"""A product on a GPU of tests, and what the driver of that GPU was told."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import tensorc_dsl as td
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.schedule.trace.trace import Trace

HEAD = "use std.ops\nuse std.gpu.default.{default}\nuse std.gpu.targets.{sm_80}\n"
PRODUCT = "matmul(M=32, N=16, K=8)"


@cache
def task_of(text: str, target: str | None = "native-cuda", mcpu: str | None = None) -> Task:
    return td.loads(f"{HEAD}task t = {text} with default", target=target, mcpu=mcpu)["t"]


@cache
def trace_of(text: str, seed: int) -> Trace:
    return task_of(text).sample(seed)


def kernel_of(text: str, seed: int = 0) -> td.Kernel:
    return task_of(text).replay(trace_of(text, seed))


def operands() -> tuple[np.ndarray, np.ndarray]:
    a = np.arange(256, dtype=np.float32).reshape(32, 8) % 5
    return a, np.arange(128, dtype=np.float32).reshape(8, 16) % 3


def calls(gpu: Any, name: str) -> list[tuple[Any, ...]]:
    return [c[1:] for c in gpu.CALLS if c[0] == name]
