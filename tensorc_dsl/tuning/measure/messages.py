"""The messages of builders and runners. A builder, which runs no kernel, unpacks what the parent packed."""

from __future__ import annotations

from typing import Literal

import msgspec

from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.messages import Bug, Exhausted, Ready


class Build(msgspec.Struct, tag=True, frozen=True):
    """To a builder: compile a kernel of a task, packed as `backend.once` does it."""

    task: str
    kernel: bytes
    parts: int
    target: Target
    threads: int


class Prepare(msgspec.Struct, tag=True, frozen=True):
    """To a runner: from now on kernels compute this unscheduled program, on inputs made from the seed.

    Of a program with open dimensions, at the sizes of `reference.work`. `kind` is that of their target; the linear
    algebra of the reference has so many `threads`.
    """

    program: str
    kind: str
    seed: int
    threads: int


class Run(msgspec.Struct, tag=True, frozen=True):
    """To a runner: check and time a kernel; `best` is the time to beat, if there is one. It is checked at `extremes`,
    too, unless its schedule says that inputs have none.
    """

    code: Code
    threads: int
    best: float | None
    extremes: bool = True


Request = Build | Prepare | Run


class Built(msgspec.Struct, tag=True, frozen=True):
    """From a builder: the code for a runner."""

    code: Code


class Failed(msgspec.Struct, tag=True, frozen=True):
    """From any child: the candidate failed."""

    status: Literal["compile_error", "wrong_result", "crash", "refused"]
    message: str
    max_error: float | None = None


class Ran(msgspec.Struct, tag=True, frozen=True):
    """The result was right; seconds of each timed call, fewer where it is far slower than the best (`censored`)."""

    times: tuple[float, ...]
    max_error: float
    censored: bool = False


Reply = Ready | Built | Failed | Ran | Exhausted | Bug


requests = msgspec.msgpack.Decoder(Request)
replies = msgspec.msgpack.Decoder(Reply)
