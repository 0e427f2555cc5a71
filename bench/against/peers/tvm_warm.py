"""TVM as in `tvm`, but its model is asked after 16 trials: stock, it draws at random until it has 100 measurements."""

from __future__ import annotations

from bench.against.peers import tvm
from bench.against.problem import Job, Ready

WARM_UP = 16


def prepare(job: Job) -> Ready | None:
    return tvm.prepare(job, WARM_UP)
