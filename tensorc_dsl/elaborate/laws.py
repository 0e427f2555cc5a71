"""The laws of reducers that a file declares, tried on samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from tensorc_dsl.diagnostic import Diagnostic, Note
from tensorc_dsl.elaborate.problems import NO_LAW
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.arrays import Array, wide_dtype
from tensorc_dsl.ir.dtypes import BOOL, F64, I64, DType
from tensorc_dsl.reference.boxes import Box
from tensorc_dsl.reference.values import Values
from tensorc_dsl.syntax import tree

if TYPE_CHECKING:
    from tensorc_dsl.elaborate.declared import Declared

_SAMPLES: dict[DType, tuple[float, ...]] = {
    F64: (1.0, 2.0, 3.0, 0.5, 0.0, -1.0, -2.0, 0.75, -3.5),
    I64: (1, 2, 3, 0, -1, -2, 5, 11, -7),
    BOOL: (False, True),
}
"""The simplest first: the first example that is found is shown."""


def broken_laws(defn: tree.ReducerDef, reducer: Declared) -> list[Diagnostic]:
    """The laws that some values of the reducer's type break, each with the first example."""
    t = reducer.identity.dtype
    samples = _SAMPLES[t]
    b = defn.params[1]
    pairs, triples = list(product(samples, repeat=2)), list(product(samples, repeat=3))
    x, y = (_column(pairs, k, t) for k in range(2))
    p, q, r = (_column(triples, k, t) for k in range(3))

    made, turned, inner, outer = _combined(reducer, (x, y), (y, x), (p, q), (q, r))
    start = np.full_like(made, reducer.identity.value)
    left_first, right_first, started = _combined(reducer, (inner, r), (p, outer), (start, made))
    name = defn.name
    laws = (
        ("commutative", defn.combine, pairs, f"{name}({{0}}, {{1}})", made, f"{name}({{1}}, {{0}})", turned),
        (
            "associative", defn.combine, triples, f"{name}({name}({{0}}, {{1}}), {{2}})", left_first,
            f"{name}({{0}}, {name}({{1}}, {{2}}))", right_first,
        ),
        (
            f"left alone by its identity {defn.identity.span.text}", defn.identity, pairs,
            f"{name}({defn.identity.span.text}, {name}({{0}}, {{1}}))", started, f"{name}({{0}}, {{1}})", made,
        ),
    )  # fmt: skip
    found: list[Diagnostic] = []
    for law, place, values, left_text, left, right_text, right in laws:
        differ = np.flatnonzero(~_close(left, right))
        if differ.size:
            at = int(differ[0])
            shown = [_text(v) for v in values[at]]
            facts = (
                f"{left_text.format(*shown)} is {_text(left[at])}, {right_text.format(*shown)} is {_text(right[at])}"
            )
            repair = (
                f"a reduction starts from its identity; it must change nothing that `{name}` makes"
                if place is defn.identity
                else f"steps run in any order; what a step does to `{b}` alone belongs behind `reduce {name}[…]`"
            )
            note = Note("note", facts)
            found.append(NO_LAW(place.span, notes=(note,), reducer=name, law=law, example="", repair=repair))
    return found


def _column(rows: Sequence[tuple[float, ...]], k: int, t: DType) -> Array:
    return np.array([row[k] for row in rows], wide_dtype(t))


def _combined(reducer: Declared, *pairs: tuple[Array, Array]) -> list[Array]:
    """What the reducer makes of each two columns."""
    left, right = (np.concatenate([pair[k] for pair in pairs]) for k in range(2))
    names = dict(zip(reducer.operands, (left, right), strict=True))
    t = reducer.identity.dtype
    a, b = (ir.Load(n, (ir.Var("n"),), t) for n in reducer.operands)
    box = Box(("n",), (0,), (len(left),))
    with np.errstate(all="ignore"):
        value = Values(reducer.name, names).value(reducer.combine(a, b), box, None)
    return np.split(np.broadcast_to(value, left.shape), np.cumsum([len(x) for x, _ in pairs])[:-1])


def _close(x: Array, y: Array) -> Array:
    if x.dtype.kind != "f":
        return x == y
    with np.errstate(all="ignore"):
        near = np.abs(x - y) <= 1e-9 * np.maximum(1.0, np.maximum(np.abs(x), np.abs(y)))
    return near | (x == y) | (np.isnan(x) & np.isnan(y))


def _text(v: object) -> str:
    if isinstance(v, bool | np.bool_):
        return "true" if v else "false"
    return f"{v:g}" if isinstance(v, float | np.floating) else str(v)
