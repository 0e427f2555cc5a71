"""Whether schedules of a task give the same bits, and the first step at which they part."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.backend.once import in_order_if_lowered_so
from tensorc_dsl.base.diagnostic import Note, TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api.schedules import Promise, TaskData
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.equivalence.bits import changed_order, in_order, same_bits
from tensorc_dsl.proof.equivalence.rows import no_rows, same_rows
from tensorc_dsl.proof.equivalence.validate import Unproved, Valid
from tensorc_dsl.schedule.trace.trace import Trace, undecided

OWN = "the compute's own order"
"""What a schedule is compared with if no other one is named."""


def verify_task_bits(task: TaskData, trace: Trace, of: Trace | None = None) -> Valid | Unproved:
    """Whether the schedule gives the bits of another one, or of the compute's own order; if that is not proved, with the
    first step of each that is not proved to keep the bits that it found."""
    one = in_order(task.program) if of is None else in_order_if_lowered_so(of.program, task.target)
    named = OWN if of is None else f"`{of.name}`"
    found = same_bits(one, in_order_if_lowered_so(trace.program, task.target), (named, f"`{trace.name}`"))
    if isinstance(found, Valid):
        return found
    d = found.diagnostic
    steps = tuple(first_change(task, t) for t in (*(() if of is None else (of,)), trace))
    notes = tuple(n for n in d.notes if n.kind != "help"), tuple(n for n in d.notes if n.kind == "help")
    return Unproved(replace(d, notes=(*notes[0], *filter(None, steps), *notes[1])))


def first_change(task: TaskData, trace: Trace) -> Note | None:
    """The first step of a schedule that is not proved to keep the bits, and why; None if each of them is."""
    source = Source(f"<{trace.name}>", trace.text)
    watched = task.frozen_space(source).watch(undecided)
    before = watched.start
    for stand in watched.stands:
        if stand.program is not before and (reason := changed_order(before, stand.program)) is not None:
            return Note("first step", f"`{stand.span.text}` of `{trace.name}`: {reason}")
        before = stand.program
    return None


def verify_task_rows(task: TaskData, trace: Trace, dim: str) -> Valid | Unproved:
    """Whether each row of the results of a schedule has the same bits for every size of the open dimension `dim`."""
    program = in_order_if_lowered_so(trace.program, task.target)
    return same_rows(program, program, dim)


def is_kept(task: TaskData, promise: Promise, trace: Trace) -> bool:
    """Whether a schedule is proved to keep what was promised."""
    of, rows = promise.bits_of, promise.rows
    program = in_order_if_lowered_so(trace.program, task.target)
    found = (
        None if of is None else same_bits(of, program),
        None if rows is None else same_rows(program, program, rows),
    )
    return not any(isinstance(x, Unproved) for x in found)


def require_rows(program: Program, dim: str) -> None:
    """Raises TschedError (E0811) if an open dimension counts no rows of the results."""
    if (found := no_rows(program, dim)) is not None:
        raise TschedError(found)


def require_order(task: TaskData, of: Trace) -> Program | None:
    """The program whose bits schedules are to give, if they are those of a named one; None if these are the bits of the
    compute's own order, which steps keep one by one. Raises TschedError (E0810) if its order is open."""
    program = in_order_if_lowered_so(of.program, task.target)
    if isinstance(same_bits(in_order(task.program), program), Valid):
        return None
    found = same_bits(in_order(of.program), program)
    if isinstance(found, Unproved):
        raise TschedError(found.diagnostic)
    return program
