"""Suggestions are functions of the misspelt name and the known ones, whatever was asked before."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file
from tensorc_dsl.syntax.names import MOST, did_you_mean, nearest

MANY = [
    f"{kind}_{part}_{n}" for kind in ("input", "weight", "output") for part in ("left", "right") for n in range(100)
]


def test_a_suggestion_does_not_depend_on_earlier_ones() -> None:
    for n in range(300):
        did_you_mean(f"nothing_{n}", MANY)
    assert did_you_mean("weigth_left_7", [*MANY, "weight_left_7"]) == "did you mean `weight_left_7`?"


def test_every_mistake_of_a_file_has_its_suggestion() -> None:
    count = 300
    computes = "".join(f"compute number{n}(A: f32[M]) -> B: f32[M] {{ B[i] = A[i] }}\n" for n in range(count))
    tasks = "".join(f"task t{n} = numbr{n}(M=1)\n" for n in range(count))
    found = load_file(Source("x.tsched", computes + tasks)).diagnostics
    assert [[note.text for note in d.notes] for d in found] == [[f"did you mean `number{n}`?"] for n in range(count)]


@pytest.mark.parametrize("slip", ["register_tiel", "egister_tile", "xegister_tile", "registertile", "REGISTER_TILE"])
def test_a_slip_is_found_among_many_names(slip: str) -> None:
    close, known = nearest(slip, [*MANY, "register_tile"])
    assert close == "register_tile"
    assert known == sorted([*MANY, "register_tile"])


def test_other_names_are_listed_if_they_are_few() -> None:
    assert did_you_mean("x", []) == ""
    assert did_you_mean("x", ["x"]) == "", "not the name itself"
    assert did_you_mean("x", ["alpha"]) == "there is only `alpha`"
    assert did_you_mean("x", ["beta", "alpha"]) == "there are `alpha`, `beta`"
    assert did_you_mean("x", MANY) == ""


def test_among_too_many_nothing_is_suggested() -> None:
    assert nearest("name", (f"name{n}" for n in range(MOST)))[0] is not None
    assert nearest("name", (f"name{n}" for n in range(MOST + 1))) == (None, [])
