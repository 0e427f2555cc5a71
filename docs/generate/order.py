"""Which steps keep the bits, from the cases of the primitives: each is a program before and after its steps."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

from tensorc_dsl.faces.report.entries import code, table
from tensorc_dsl.proof.equivalence.bits import changed_order, in_order
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.step import ScheduleRefusal
from tests.primitives.cases import Case, all_cases, before_program, run


def kept_bits() -> str:
    """How many of the cases of each primitive keep the bits; and of those that do not, the first one."""
    found: defaultdict[str, list[tuple[Case, str | None]]] = defaultdict(list)
    for case in all_cases():
        if case.kind == "tsched":
            with suppress(ScheduleRefusal):  # of a new case, whose refusal is not on its page yet
                after = in_order(run(case))
                found[case.page.stem].append((case, changed_order(in_order(before_program(case)), after)))
    always = [name for name in sorted(PRIMITIVES) if all(why is None for _, why in found[name])]
    rows: list[tuple[str, ...]] = []
    for name in sorted(PRIMITIVES):
        kept, other = ([case for case, why in found[name] if (why is None) is wanted] for wanted in (True, False))
        if other:
            rows.append((code(name), f"{len(kept)} of {len(found[name])}", other[0].title))
    kept_always = ", ".join(map(code, always))
    head = ["step", "cases that keep the bits", "a case that is not proved to"]
    return f"In all of their cases these keep the bits: {kept_always}.\n\n{table(head, rows)}"
