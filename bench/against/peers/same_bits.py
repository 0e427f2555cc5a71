"""tensorc-dsl with `--same-bits`: what it costs that results have the bits of the compute's own order.

Its searches have records of their own, so that neither search knows what the other tried.
"""

from __future__ import annotations

import tensorc_dsl
from bench.against.peers.ours import ready
from bench.against.problem import Job, Ready


def prepare(job: Job) -> Ready:
    task = tensorc_dsl.load(job.problem.file, threads=job.threads)[job.problem.task]
    return ready(task.keeping(bits=True), job, job.records.with_name(f"{job.records.name}.same-bits"))
