"""Questions have a limit, and all questions of a proof have one together."""

from __future__ import annotations

import islpy as isl
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.proof.equivalence.validate import Unproved, validate
from tensorc_dsl.proof.sets import isl as limits
from tensorc_dsl.proof.sets.isl import Exhausted, bounded, renew

COPY = "program p(A: f32[3], B: f32[3]) { for i in 3 { block B { spatial v in 3 = i; B[v] = A[v] } } }"


def ask(times: int) -> None:
    """A question of some thousand operations for each time."""
    for _ in range(times):
        isl.Map("{ [i, j] -> [floor((i + 3*j)/5), j] : 0 <= i < j < 40 }").is_single_valued()


def questions(most: int) -> int:
    """How many questions there are until none is allowed."""
    for n in range(most):
        try:
            renew()
            ask(1)
        except Exhausted:
            return n
    return most


def test_a_question_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OPERATIONS", 10)
    with pytest.raises(Exhausted), bounded():
        ask(1)


def test_other_errors_are_told_from_it() -> None:
    with pytest.raises(isl.Error), bounded():
        isl.Set("{ [i")


def test_all_questions_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUESTIONS", 1)
    monkeypatch.setattr(limits, "OPERATIONS", 4 * 10**5)
    with bounded():
        count = questions(400)
    assert 0 < count < 400
    with bounded():  # each proof has its own
        assert questions(400) == count
    with bounded():
        renew()
        with bounded():  # a part of one has not
            assert 0 < questions(count // 2) == count // 2
        assert questions(400) < count


def test_a_large_question_counts_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUESTIONS", 1)
    with bounded():
        count = questions(400)
    with bounded():
        ask(200)
        assert questions(400) < count - 10


def test_without_a_limit_nothing_is_counted() -> None:
    assert questions(50) == 50


def test_a_proof_that_asks_too_much_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUESTIONS", 0)
    program = parse_program(Source("p", COPY))
    report = validate(program, program)
    assert isinstance(report, Unproved)
    assert "more than the operations" in report.diagnostic.message
