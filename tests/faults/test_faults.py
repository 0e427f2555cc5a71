"""Broken primitives are caught. `pytest tests/faults -s` prints by which check."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.verify import ProgramError, verify
from tensorc_dsl.proof.equivalence.validate import Invalid, Valid, validate
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import InterpretError, Order, interpret
from tensorc_dsl.schedule.step import ScheduleRefusal
from tests.faults.faults import FAULTS, Fault
from tests.primitives.cases import Case, before_program, run

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
ORDERS: tuple[Order, ...] = ("forward", "reversed", "shuffled")
HEAD = """# Faults

Each line is a fault that was seeded in the code of a primitive, and the checks that catch it in the program that the
primitive then makes: `validate`, the comparison with the reference (for each order of loops that run at once), and the rules
of `verify` for the form of a program. `tests/faults` repeats this in every run of the tests, and shows that without the fault
the same steps are refused or right. Written by `pytest tests/faults --accept`.

| fault | validate | reference | form |
| --- | --- | --- | --- |
"""


def case_of(fault: Fault) -> Case:
    return Case(Path("faults.md"), fault.title, fault.program, fault.call, "tsched", "")


def differs(original: Program, scheduled: Program) -> bool:
    inputs = make_inputs(original, 0)
    expected = interpret(original, inputs)
    for order in ORDERS:
        try:
            found = interpret(scheduled, inputs, order)
        except InterpretError:
            return True
        if any(not np.allclose(found[name], want, rtol=1e-9, atol=1e-12) for name, want in expected.items()):
            return True
    return False


def breaks_form(scheduled: Program) -> bool:
    try:
        verify(scheduled)
    except ProgramError:
        return True
    return False


def forget() -> None:
    """Programs of cases are made anew: what a broken step makes of one must not stand for what the right one does."""
    before_program.cache_clear()
    run.cache_clear()


def caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, bool, bool]:
    """Whether validation does not prove what the broken primitive makes, and comparison and the rules of form find it."""
    forget()
    original = before_program(case_of(fault))
    module, _, name = fault.at.rpartition(".")
    with monkeypatch.context() as m:
        m.setattr(fault.at, fault.by(getattr(importlib.import_module(module), name)))
        broken = run(case_of(fault))
    forget()
    return not isinstance(validate(original, broken), Valid), differs(original, broken), breaks_form(broken)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.title)
def test_a_fault_is_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert any(caught(fault, monkeypatch)[:2])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.title)
def test_without_it_the_steps_are_refused_or_right(fault: Fault) -> None:
    original = before_program(case_of(fault))
    try:
        scheduled = run(case_of(fault))
    except ScheduleRefusal:
        return
    assert not isinstance(validate(original, scheduled), Invalid)
    assert not differs(original, scheduled)
    assert not breaks_form(scheduled)


def test_the_page_says_who_catches_what(monkeypatch: pytest.MonkeyPatch, accept: bool) -> None:
    rows = [(f.title, *("caught" if x else "" for x in caught(f, monkeypatch))) for f in FAULTS]
    page = HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)
    print(page)
    if accept:
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "run `pytest tests/faults --accept`, and read the difference"
