"""A builder that fails as the candidate's name says, and builds otherwise."""

from __future__ import annotations

import os
import signal
import time

from tensorc_dsl.measure.builder import build
from tensorc_dsl.measure.child import serve
from tensorc_dsl.measure.messages import Build, Reply, Request, requests


def answer(request: Request) -> Reply:
    assert isinstance(request, Build)
    if "program crash" in request.program:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "program hang" in request.program:
        time.sleep(1000)
    if "program fill" in request.program:
        bytearray(1 << 40)
    if "program bug" in request.program:
        raise ZeroDivisionError
    return build(request)


if __name__ == "__main__":
    serve(requests, answer)
