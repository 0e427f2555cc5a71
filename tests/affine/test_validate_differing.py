"""The part in which two programs differ is proved apart from the rest, where the rest does not take part in it."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.equivalence.validate import Invalid, Unproved, Valid, differing_parts, proves, validate


def _program(body: str) -> Program:
    head = "program p(X: f32[8], Y: f32[8]) {\n    buffer A: f32[8]\n    buffer B: f32[8]\n"
    return parse_program(Source("test", head + body + "}\n"))


def _stage(to: str, value: str, var: str, name: str | None = None) -> str:
    return f"for {var} in 8 {{ block {name or to} {{ spatial v in 8 = {var}\n {to}[v] = {value} }} }}\n"


FIRST = _stage("A", "X[v] * 2.0", "i")
MIDDLE = _stage("B", "A[v] + 1.0", "j")
TURNED = MIDDLE.replace("= j\n", "= 7 - j\n")
OFF = _stage("B", "A[7 - v] + 1.0", "j")
LAST = _stage("Y", "B[v] * B[v]", "k")


def test_what_both_begin_and_end_with_is_left_out() -> None:
    found = differing_parts(_program(FIRST + MIDDLE + LAST), _program(FIRST + TURNED + LAST))
    assert found is not None
    a, b = found
    assert [len(a.body), len(b.body)] == [1, 1]
    assert [x.name for x in a.inputs] == ["A"]
    assert [x.name for x in a.outputs] == ["B"]
    assert isinstance(validate(a, b), Valid)
    assert proves(_program(FIRST + MIDDLE + LAST), _program(FIRST + TURNED + LAST))


def test_a_difference_in_the_part_is_one_of_the_whole() -> None:
    found = differing_parts(_program(FIRST + MIDDLE + LAST), _program(FIRST + OFF + LAST))
    assert found is not None
    assert isinstance(validate(*found), Invalid | Unproved)
    assert not proves(_program(FIRST + MIDDLE + LAST), _program(FIRST + OFF + LAST))


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("", ""),
        (_stage("B", "X[v]", "m", "before"), LAST),  # the part makes the rest of an array
        (FIRST, _stage("B", "B[v] + 1.0", "m", "again") + LAST),
        (_stage("A", "B[v]", "m"), LAST),  # what stands before reads what the part makes
    ],
)
def test_the_whole_is_proved_where_the_rest_takes_part(before: str, behind: str) -> None:
    assert differing_parts(_program(before + MIDDLE + behind), _program(before + TURNED + behind)) is None


def test_what_is_read_behind_only_in_part_is_proved_as_a_whole() -> None:
    some = MIDDLE.replace("for j in 8 {", "for j in 5 {")  # the last three elements of `B` are not made, and not read
    last = "for k in 8 { block Y { spatial v in 8 = k\n Y[v] = B[v] if v < 5 else 0.0 } }\n"
    a, b = _program(FIRST + MIDDLE + last), _program(FIRST + some + last)
    found = differing_parts(a, b)
    assert found is not None
    assert not isinstance(validate(*found), Valid)
    assert proves(a, b)
