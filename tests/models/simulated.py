"""A model of two small tasks whose schedules cost little to draw, and a runner that times nothing: the seconds of a kernel
are a number drawn by its program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

from tensorc_dsl.ir.program import Program
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.records.trial import program_key

FILE = """\
use std.ops.{matmul}

compute relu(X: f32[M, N]) -> Y: f32[M, N] {
    Y[i, j] = max(X[i, j], 0.0)
}

schedule products for matmul {
    let number ~ sample_int(0..1000000)
    annotate(root, "number", number)
}

schedule others for relu {
    let number ~ sample_int(0..1000000)
    annotate(root, "number", number)
}

model net(x: f32[8, 8], w: f32[8, 8]) -> y: f32[8, 8] {
    let a = matmul(x, w)
    let b = relu(a)
    let c = matmul(b, w)
    let d = reshape(c, [4, 16])
    let e = reshape(d, [8, 8])
    y = relu(e)
}
"""


def seconds_of(program: Program) -> float:
    """Between 10 and 20 µs."""
    return 1e-5 * (1.0 + int(program_key(program)[:6], 16) / 16**6)


class Simulated:
    """In place of `LocalRunner`. `timed` has the keys of the programs in the order in which they were measured as trials."""

    compared = 1.0
    timed: ClassVar[list[str]] = []

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        for p in programs:
            self.timed.append(program_key(p))
            yield self.again(p)

    def again(self, program: Program, best: float | None = None) -> Outcome:
        return Outcome(Status.OK, seconds_of(program), (seconds_of(program),) * 8)

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        return [self.again(p) for p in programs]

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        pass
