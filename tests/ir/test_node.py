"""Nodes are frozen dataclasses, and the facts that are kept with them are those of their text."""

from __future__ import annotations

import pickle
from copy import copy
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import F32, INDEX
from tensorc_dsl.ir.expr import (
    Binary,
    Cast,
    Const,
    Dim,
    Expr,
    Load,
    Select,
    Var,
    children,
    dims_in,
    free_vars,
    index,
    loads,
)
from tensorc_dsl.ir.program import For


@frozen
class Point:
    x: int
    y: int = 7


@frozen
class Empty:
    pass


def test_a_node_is_a_frozen_dataclass() -> None:
    p = Point(1)
    assert (p, p.y, repr(p)) == (Point(x=1, y=7), 7, "Point(x=1, y=7)")
    assert hash(p) == hash(Point(1, 7))
    assert replace(p, y=2) == Point(1, 2)
    assert [f.name for f in fields(Point)] == ["x", "y"]
    assert pickle.loads(pickle.dumps(For("i", index(4), ()))) == For("i", index(4), ())
    for made in (p, Empty()):
        for protocol in (2, 5):
            assert pickle.loads(pickle.dumps(made, protocol)) == made
    assert copy(p) == p
    with pytest.raises(FrozenInstanceError):
        p.x = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="missing"):
        Point()  # type: ignore[call-arg]


def _all(e: Expr) -> list[Expr]:
    return [e, *(x for c in children(e) for x in _all(c))]


def test_facts_are_those_of_the_text() -> None:
    i, n = Var("i"), Dim("n", 1, 9)
    inner = Load("B", (Binary("+", i, n),), F32)
    outer = Load("A", (Cast(inner, INDEX), Var("j")), F32)
    e = Select(Binary("-", i, index(2)), Binary("*", outer, Const(2.0, F32)), inner)
    for _ in range(2):  # computed, and kept
        for x in (e, *_all(e)):
            every = _all(x)
            assert free_vars(x) == {y.name for y in every if isinstance(y, Var | Dim)}
            assert dims_in(x) == {y for y in every if isinstance(y, Dim)}
            assert loads(x) == tuple(y for y in every if isinstance(y, Load))
    again = pickle.loads(pickle.dumps(e))
    assert again == e
    assert not hasattr(again, "facts")  # facts are no part of a value
    assert loads(again) == loads(e)


def test_a_hash_is_kept_with_an_expression_and_left_out_of_a_pickle() -> None:
    e, same = (Binary("+", Load("A", (Var("i"), index(3)), F32), Const(2.0, F32)) for _ in range(2))
    assert not hasattr(e, "hashed")
    assert hash(e) == hash(same) == e.hashed
    assert hash(replace(e, op="*")) != hash(e)
    assert {e: 1}[same] == 1
    assert not hasattr(pickle.loads(pickle.dumps(e)), "hashed")
    assert not hasattr(copy(e), "hashed")


def test_expressions_that_nest_as_deep_as_before_have_hashes() -> None:
    e: Expr = Var("i")
    for _ in range(400):
        e = Binary("+", e, index(1))
    assert hash(e) == e.hashed


def test_expressions_of_any_depth_have_facts() -> None:
    e: Expr = Var("i")
    for k in range(20_000):
        e = Binary("+", e, Var(f"x{k % 3}"))
    assert free_vars(e) == {"i", "x0", "x1", "x2"}
