"""Models whose schedules give the same bits, as a whole: those of a schedule that is named, or of a row in every batch."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.program import Program, is_in_order
from tensorc_dsl.proof.equivalence.bits import in_order, same_bits
from tensorc_dsl.proof.equivalence.rows import same_rows
from tensorc_dsl.proof.equivalence.validate import Unproved
from tensorc_dsl.schedule.step import refusal
from tensorc_dsl.schedule.trace.trace import Decider, Model, Trace


@refusal(
    "E0348",
    "the schedule is not proved to give the bits that are wanted: {reason}",
    help="leave out `--bits-of` and `--same-rows`, or draw another schedule",
)
def OTHER_BITS(*focus: str, reason: str) -> None: ...


@frozen
class Kept(Model):
    """The schedules of a model that are proved to give the bits of the program `of`, and in each batch the same ones for the
    rows that the dimension `rows` counts. Each ends with `keep_order()`, so that lowering keeps to what is proved."""

    model: Model
    of: Program | None = None
    rows: str | None = None

    def expand(self, decide: Decider) -> Trace:
        trace = self.model.expand(decide)
        if trace.program.cases and not is_in_order(trace.program):
            raise OTHER_BITS(
                trace.program, reason="a schedule with `select` begins with `keep_order()` to keep its order"
            )
        if not is_in_order(trace.program):
            program = in_order(trace.program)
            trace = replace(trace, lines=(*trace.lines, "keep_order()"), program=program)
        names = ("the schedule that is named", "this one")
        for found in (
            None if self.of is None else same_bits(self.of, trace.program, names),
            None if self.rows is None else same_rows(trace.program, trace.program, self.rows),
        ):
            if isinstance(found, Unproved):
                raise OTHER_BITS(trace.program, reason=found.diagnostic.message)
        return trace
