"""One place of a right program or kernel changed: what is proved runs right, and what is refuted does not.

`make mutants` tries more of them.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from campaigns.mutants import WRONG, Right, Truth, judged, kernel_mutant, report, run
from campaigns.mutations import OPERATORS
from campaigns.scheduled_pages import random_start, scheduled
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.equivalence.validate import Report, validate
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import InterpretError, interpret


def program(text: str) -> Program:
    return parse_program(Source("p.tsched", text))


def test_what_is_proved_runs_right_and_what_is_refuted_does_not() -> None:
    found = run("programs", 3, range(16))
    assert not [m.text for m in found if m.outcome in WRONG]
    assert sum(m.outcome == "refuted" for m in found) > 5, report(found)


def test_a_weaker_kernel_is_found() -> None:
    found = [kernel_mutant(random.Random(f"3/{n}"), n, ("matmul(M=9, N=6, K=21)",)) for n in range(6)]
    assert sum(m.outcome == "found" for m in found) >= 3, report(found)


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_changes_pages(name: str) -> None:
    rng = random.Random(name)
    for _ in range(300):
        page = random_start(rng)
        _, right = scheduled(page.text, page.steps)
        if changes := list(OPERATORS[name](right)):
            assert any(change() != right for change in changes)
            return
    raise AssertionError("it applies nowhere")


PASSED = """
program p(A: f32[4], B: f32[4]) {
    buffer T: f32[4]
    for i in 4 { block T { spatial v in 4 = i; T[v] = A[v] } }
    for i_1 in 4 { block B { spatial v in 4 = i_1; B[v] = T[VALUE] * 2.0 } }
}
"""


def test_a_proof_and_a_refutation_that_are_wrong_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, turned = program(PASSED.replace("VALUE", "v")), program(PASSED.replace("VALUE", "3 - v"))
    right = Right(plain, plain, "by hand")
    assert judged(right, turned, Truth(right, 0))[0] == "refuted"
    assert judged(right, plain, Truth(right, 0))[0] == "equivalent"

    def contrary(_: Program, mutant: Program) -> Report:
        return validate(plain, turned if mutant == plain else plain)

    monkeypatch.setattr("campaigns.mutants.validate", contrary)
    assert judged(right, turned, Truth(right, 0))[0] == "wrong accept"
    assert judged(right, plain, Truth(right, 0))[0] == "false refutation"


def test_memory_that_was_not_cleared_shows_only_in_what_depends_on_it() -> None:
    """A block reads what nothing has written, and stores it where another stores later."""
    text = PASSED.replace("VALUE", "v")
    first, second = (line for line in text.splitlines() if "block" in line)
    again = second.replace("i_1", "i_2").replace("block B", "block B_1")
    dead = program(text.replace(first, f"{again}\n{first}"))
    early = program(text.replace(f"{first}\n{second}", f"{second}\n{first}"))
    inputs = make_inputs(dead, 0)
    for p in (dead, early):
        with pytest.raises(InterpretError, match="read before it is written"):
            interpret(p, inputs)
    np.testing.assert_array_equal(interpret(dead, inputs, fill=(1, math.nan))["B"], inputs["A"].astype(float) * 2)
    assert np.isnan(interpret(early, inputs, fill=(1, math.nan))["B"]).all()
