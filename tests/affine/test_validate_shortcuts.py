"""A stage that is written by a copy is proved as a whole, and not piece by piece of each read."""

from __future__ import annotations

import islpy as isl
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.equivalence import validate as validation
from tensorc_dsl.proof.equivalence.validate import Invalid, Valid, proves, validate

PARAMS = "X: f32[9, 14], Y: f32[9, 7]"

READS = """
    for y1 in 9, x1 in 7 {
        block Y {
            spatial vy in 9 = y1
            spatial vx in 7 = x1
            Y[vy, vx] = S[min((vy * 2 + 17) % 18, 17 - (vy * 2 + 17) % 18), min((vx * 2 + 25) % 28, 27 - (vx * 2 + 25) % 28)]
                + S[min((vy * 2 + 13) % 18, 17 - (vy * 2 + 13) % 18), min((vx * 2 + 23) % 28, 27 - (vx * 2 + 23) % 28)]
                + S[min((vy * 3 + 15) % 18, 17 - (vy * 3 + 15) % 18), max(vx * 2 - 1, 0)]
        }
    }
"""

PLAIN = """
program p(%s) {
    buffer S: f32[9, 14]
    for y in 9, x in 14 {
        block S {
            spatial vy in 9 = y
            spatial vx in 14 = x
            S[vy, vx] = X[vy, vx] * 2.0
        }
    }
    %s
}
"""

TURNED = """
program p(%s) {
    buffer S: f32[9, 14]
    buffer T: f32[14, 9]
    for x in 14, y in 9 {
        block S {
            spatial vy in 9 = y
            spatial vx in 14 = x
            T[vx, vy] = X[vy, vx] * 2.0
        }
    }
    for a0 in 3, b0 in 3, a1 in 4, b1 in 5 {
        block S_write {
            spatial v0 in 9 = a0 * 4 + a1
            spatial v1 in 14 = b0 * 5 + b1
            where a0 * 4 + a1 < 9
            where b0 * 5 + b1 < 14
            S[v0, v1] = T[v1, %s]
        }
    }
    %s
}
"""


def program(text: str) -> Program:
    return parse_program(Source("p", text))


@pytest.fixture
def original() -> Program:
    return program(PLAIN % (PARAMS, READS))


def test_reads_of_a_copy_ask_for_the_elements_that_it_writes(
    original: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "STEP_PIECES", 4)  # each read has so many, and all together more
    monkeypatch.setattr("tensorc_dsl.proof.equivalence.compare._graph", lambda _: None)
    assert proves(original, program(TURNED % (PARAMS, "v0", READS)))


def test_a_function_that_is_not_found_soon_is_not_needed(original: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def takes_long(asked: object) -> None:
        raise isl.Error("maximal number of operations exceeded")

    monkeypatch.setattr("tensorc_dsl.proof.equivalence.compare._graph", takes_long)
    assert isinstance(validate(original, program(TURNED % (PARAMS, "v0", READS))), Valid)


def test_elements_of_one_name_are_not_taken_to_be_equal(original: Program) -> None:
    assert isinstance(validate(original, program(TURNED % (PARAMS, "8 - v0", READS))), Invalid)
    assert isinstance(validate(original, program(TURNED % (PARAMS, "(v0 + 1) % 9", READS))), Invalid)


def test_what_is_asked_for_too_much_is_taken_back(original: Program) -> None:
    # The last column is never read, so the copy may have anything there.
    other = TURNED.replace("T[v1, %s]", "T[min(v1, 12), %s]")
    assert proves(original, program(other % (PARAMS, "v0", READS)))
