"""The messages between the harness and a library's process, in the frames of `tensorc_dsl.processes.protocol`."""

from __future__ import annotations

import msgspec

from bench.against.problem import Problem
from tensorc_dsl.processes.protocol import Purpose


class Prepare(msgspec.Struct, tag=True, frozen=True):
    """Prepare to run the problem on the inputs in `folder`, and write the outputs of a first run there."""

    module: str
    problem: Problem
    folder: str
    threads: int
    trials: int
    seed: int
    records: str


class Turn(msgspec.Struct, tag=True, frozen=True):
    """Run for about that many seconds."""

    seconds: float


class Prepared(msgspec.Struct, tag=True, frozen=True):
    """The outputs are in the folder. `note` is shown with the table; `searched` and `tried` are those of `Ready`."""

    note: str
    searched: float | None
    tried: tuple[float | None, ...] = ()


class NotOffered(msgspec.Struct, tag=True, frozen=True):
    """The library has no such operator."""


class Times(msgspec.Struct, tag=True, frozen=True):
    """Seconds of one call, for each batch of calls."""

    seconds: tuple[float, ...]


Reply = Prepared | NotOffered | Times

LIBRARY: Purpose[Prepare | Turn, Reply] = Purpose("bench.against.worker:library", Prepare | Turn, Reply)

RESULT = "result.npz"
