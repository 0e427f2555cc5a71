"""A builder that fails as the candidate's name says, and builds otherwise."""

from __future__ import annotations

import os
import signal
import time

from tensorc_dsl.processes.protocol import Purpose
from tensorc_dsl.tuning.measure.child import Build, Built, Failed, build

DYING: Purpose[Build, Built | Failed] = Purpose("dying_builder:main", Build, Built | Failed)


def answer(request: Build) -> Built | Failed:
    if request.task == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if request.task.startswith("hang"):
        time.sleep(1000)
    if request.task == "fill":
        bytearray(1 << 40)
    if request.task == "bug":
        raise ZeroDivisionError
    return build(request)


def main() -> None:
    DYING.serve(answer)
