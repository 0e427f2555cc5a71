"""The pages of cases, and the rules that hold for every primitive."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tests.primitives.cases import (
    FOLDER,
    Case,
    all_cases,
    before_program,
    outcome,
    read_page,
    repairs,
    run,
    with_repair,
    write_back,
)
from tests.programs import proof_fault, random_inputs

CASES = all_cases()
ACCEPTED = [c for c in CASES if c.kind == "tsched"]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_case(case: Case, accept: bool) -> None:
    kind, text = outcome(case)
    if accept and (kind, text) != (case.kind, case.expected):
        write_back(case, kind, text)
        return
    assert (kind, text) == (case.kind, case.expected)


@pytest.mark.corpus
@pytest.mark.parametrize("case", ACCEPTED, ids=lambda c: c.name)
def test_result_is_well_formed_and_computes_the_same(case: Case) -> None:
    before, after = before_program(case), run(case)
    verify(before)
    verify(after)
    assert parse_program(Source("printed", format_program(after))) == after
    assert parse_program(Source("printed", format_program(before))) == before
    if before.dims:
        return
    inputs = random_inputs(before)
    expected, found = interpret(before, inputs), interpret(after, inputs)
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5, equal_nan=False)


@pytest.mark.corpus
@pytest.mark.parametrize("case", ACCEPTED, ids=lambda c: c.name)
def test_result_is_proved_without_the_primitive(case: Case) -> None:
    assert not proof_fault(before_program(case), run(case))


@pytest.mark.parametrize(
    ("case", "steps"),
    [(c, steps) for c in CASES for steps in repairs(c)],
    ids=lambda x: x.name if isinstance(x, Case) else ", ".join(x),
)
def test_the_steps_that_a_repair_names_are_accepted(case: Case, steps: tuple[str, ...]) -> None:
    run(with_repair(case, steps))
    same = steps[-1].partition("(")[0] == case.call.splitlines()[-1].partition("(")[0]
    if not same and " first" in case.expected.partition(" = help: ")[2]:
        run(with_repair(case, steps, again=True))


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_every_refusal_has_a_case(name: str) -> None:
    assert (FOLDER / f"{name}.md").exists()
    # Read again: `--accept` may have written outcomes since.
    seen = {c.expected[6:11] for c in read_page(FOLDER / f"{name}.md") if c.kind == "error"}
    declared = {r.code for r in PRIMITIVES[name].refusals}
    assert seen == declared


def test_codes_are_unique() -> None:
    by_code: dict[str, str] = {}
    for p in PRIMITIVES.values():
        for r in p.refusals:
            assert by_code.setdefault(r.code, r.message) == r.message
