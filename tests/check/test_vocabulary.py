"""The checker's vocabulary is the interpreter's."""

from __future__ import annotations

from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.interp import evaluate, queries
from tensorc_dsl.interp.draws import DRAWS


def test_distributions() -> None:
    known = {name: (k.params, k.required) for name, k in DRAWS.items()}
    assert {name: (s.params, s.required) for name, s in v.DISTRIBUTIONS.items()} == known
    assert not set(v.LATER_DISTRIBUTIONS) & set(DRAWS)


def test_functions() -> None:
    assert set(v.FUNCTIONS) == evaluate.BUILTINS | {"interleave"}


def test_attributes() -> None:
    assert {kind: set(names) for kind, names in v.ATTRIBUTES.items()} == {
        v.BLOCK: set(queries.BLOCK_QUERIES),
        v.LOOP: set(queries.LOOP_QUERIES),
        v.BUFFER: set(queries.BUFFER_QUERIES),
        v.PROGRAM: set(queries.PROGRAM_QUERIES),
        v.TARGET: set(queries.TARGET_FACTS),
    }
