"""Which steps keep the bits, from the cases of the primitives: each is a program before and after its steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tensorc_dsl.faces.report.entries import code, table
from tensorc_dsl.proof.equivalence.bits import changed_order, in_order
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.step import ScheduleRefusal
from tests.primitives.cases import Case, all_cases, before_program, run

Row = tuple[str, str, str]
"""A primitive, how many of its cases keep the bits, and the first one that does not."""


def row(name: str) -> Row | None:
    """The row of a primitive; None where all of its cases keep the bits."""
    found: list[tuple[Case, str | None]] = []
    for case in all_cases():
        if case.page.stem == name and case.kind == "tsched":
            with suppress(ScheduleRefusal):  # of a new case, whose refusal is not on its page yet
                after = in_order(run(case))
                found.append((case, changed_order(in_order(before_program(case)), after)))
    kept, other = ([case for case, why in found if (why is None) is wanted] for wanted in (True, False))
    return (code(name), f"{len(kept)} of {len(found)}", other[0].title) if other else None


def kept_bits(row_of: Callable[[str], Row | None] = row) -> str:
    """How many of the cases of each primitive keep the bits; and of those that do not, the first one."""
    found = {name: row_of(name) for name in sorted(PRIMITIVES)}
    kept_always = ", ".join(code(name) for name, of in found.items() if of is None)
    head = ["step", "cases that keep the bits", "a case that is not proved to"]
    rows = [of for of in found.values() if of is not None]
    return f"In all of their cases these keep the bits: {kept_always}.\n\n{table(head, rows)}"
