"""The outcome of one candidate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Only `OK` has a time. `REFUSED`: the lowering refuses the program, or an
    assembler has too few registers for it, and nothing was run. `TOO_FAST`: the result was
    right, and the time is shorter than the machine allows."""

    OK = "ok"
    COMPILE_ERROR = "compile_error"
    TIMEOUT = "timeout"
    CRASH = "crash"
    WRONG_RESULT = "wrong_result"
    REFUSED = "refused"
    TOO_FAST = "too_fast"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A candidate's end. `seconds` summarizes `times` (seconds per call) and is None unless the result was right.

    `max_error` is the largest error met as a share of the tolerance (at most 1 when the result was right), None when no
    result came back.
    `censored`: timing was cut short, since the kernel is far slower than the best. `scale` is how many times slower the
    machine was than before, by which the summary is divided, and the times are not.
    `compared` is the share of the results of which the reference is a number or an infinity within a bound.
    `build_seconds` and `run_seconds` are what lowering with compiling and what checking with timing took.
    """

    status: Status
    seconds: float | None = None
    times: tuple[float, ...] = ()
    message: str = ""
    max_error: float | None = None
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    censored: bool = False
    scale: float = 1.0
    compared: float = 1.0

    def __post_init__(self) -> None:
        if (self.seconds is not None) != (self.status is Status.OK):
            raise ValueError(f"an outcome has a time if and only if it is ok, not {self.status} with {self.seconds}")
