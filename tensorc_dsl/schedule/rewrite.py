"""The result of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.refs import BlockRef, LoopRef

Result = LoopRef | BlockRef | tuple[LoopRef, ...] | tuple[BlockRef, ...] | None
R_co = TypeVar("R_co", bound=Result, covariant=True)


@dataclass(frozen=True, slots=True)
class Rewrite(Generic[R_co]):
    """The new program, and the loops or blocks that a step returns (a tuple if there can be several)."""

    program: Program
    results: R_co
