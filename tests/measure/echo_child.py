"""A child that follows the text of a `Build`, for the tests of `Worker`."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np

from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.processes import protocol
from tensorc_dsl.processes.protocol import Purpose
from tensorc_dsl.tuning.measure.check import Guarded
from tensorc_dsl.tuning.measure.child import Build, Built

protocol.GRACE = 0.5  # `test_a_child_ends_by_itself_when_nobody_ends_it` waits for so long


ECHO: Purpose[Build, Built] = Purpose("echo_child:main", Build, Built)


def answer(request: Build) -> Built:
    match request.task.split():
        case ["die", code]:
            print("last words", file=sys.stderr, flush=True)
            os._exit(int(code))
        case ["say", *words]:
            print(*words, file=sys.stderr, flush=True)
            os._exit(1)
        case ["signal", number]:
            os.kill(os.getpid(), int(number))
        case ["hang"]:
            time.sleep(1000)
        case ["hang-with-child"]:
            child = subprocess.Popen(["sleep", "1000"])
            print(child.pid, file=sys.stderr, flush=True)
            time.sleep(1000)
        case ["fill", count]:
            return Built(Code(bytes(int(count))[:1], "echo", frozenset()))
        case ["map", count]:
            Guarded((int(count),), np.dtype(np.uint8))
        case ["nonsense"]:
            os.write(4, (5).to_bytes(8, "little") + b"\xc1\xc1\xc1\xc1\xc1")
        case ["huge"]:
            os.write(4, b"\xff" * 8)
        case ["bug"]:
            raise KeyError("a mistake of ours")
        case ["print"]:
            print("noise on stdout", flush=True)
            os.write(1, b"more noise")
        case ["pid"]:
            return Built(Code(b"", str(os.getpid()), frozenset()))
        case _:
            pass
    return Built(Code(request.task.encode(), "echo", frozenset()))


def main() -> None:
    ECHO.serve(answer)
