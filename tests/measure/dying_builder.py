"""A builder that fails as the candidate's name says, and builds otherwise."""

from __future__ import annotations

import os
import signal
import time

from tensorc_dsl.processes.child import serve
from tensorc_dsl.tuning.measure.builder import build
from tensorc_dsl.tuning.measure.messages import Build, Reply, Request, requests


def answer(request: Request) -> Reply:
    assert isinstance(request, Build)
    if request.task == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if request.task.startswith("hang"):
        time.sleep(1000)
    if request.task == "fill":
        bytearray(1 << 40)
    if request.task == "bug":
        raise ZeroDivisionError
    return build(request)


if __name__ == "__main__":
    serve(requests, answer)
