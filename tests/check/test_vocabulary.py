"""The checker's vocabulary equals the interpreter's, and describes each word."""

from __future__ import annotations

import pytest

from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.kinds import LIST, PARAM_TYPES, STR, Base, kinds_of
from tensorc_dsl.interp.arguments import LIST_METHODS, STRING_METHODS, Builtins
from tensorc_dsl.interp.calls import COMPOUNDS
from tensorc_dsl.interp.calls import PARAM_TYPES as MEANINGS
from tensorc_dsl.interp.evaluate import Budget
from tensorc_dsl.interp.record import GIVEN
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.trace.draws import DRAWS


def test_functions_and_methods_have_a_meaning() -> None:
    assert set(v.FUNCTIONS) == set(Builtins(Budget(), []).functions)
    assert set(v.COMPOUNDS) == set(COMPOUNDS)
    assert set(v.METHODS[STR]) == set(STRING_METHODS)
    assert set(v.METHODS[LIST]) == set(LIST_METHODS)


def test_queries_are_attributes_or_methods() -> None:
    known = {name for table in (*v.ATTRIBUTES.values(), *v.METHODS.values()) for name in table}
    assert known >= {name for table in QUERIES.values() for name in table}
    assert "loops" in v.ATTRIBUTES[Base.BLOCK]
    assert "working_set" in v.METHODS[Base.BLOCK]
    assert "has" in v.METHODS[Base.TARGET]


def test_types_of_parameters_mean_the_same() -> None:
    assert set(PARAM_TYPES) == set(MEANINGS)
    assert set(v.GIVEN) == set(GIVEN)


@pytest.mark.parametrize("declared", [*PRIMITIVES.values(), *DRAWS.values()], ids=lambda d: d.name)
def test_every_parameter_and_result_of_a_declaration_has_a_kind(declared: object) -> None:
    signature = getattr(declared, "signature")  # noqa: B009 - either of two types
    assert all(kinds_of(p.annotation) for p in signature.parameters.values())


def test_every_word_is_documented_in_one_line_or_more() -> None:
    tables = [v.FUNCTIONS, v.STEPS, v.COMPOUNDS, v.DISTRIBUTIONS, *v.METHODS.values(), *v.ATTRIBUTES.values()]
    for name, word in ((n, w) for table in tables for n, w in table.items()):
        first = word.doc.split("\n")[0]
        assert first.endswith((".", ":", ",")) or len(first) > 60, name
