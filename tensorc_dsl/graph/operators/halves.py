"""Computes of floats of 16 bits: each operand is read as f32, and each result is rounded once.

The language rounds every operation on them, so a sum of many terms in f16 has few digits. Runtimes compute in f32, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from tensorc_dsl.base.source import Source
from tensorc_dsl.graph.graph import Tensor, onnx_dtype
from tensorc_dsl.graph.operators.lowering import (
    Computed,
    Definition,
    Known,
    Lowered,
    Operand,
    Parameter,
    Site,
    Viewed,
    Writer,
)
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.format import format_stage
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.syntax.traversal import rewrite_tree, walk

HALVES = ("f16", "bf16")


def in_single(writer: Writer, single: frozenset[str] = frozenset()) -> Writer:
    """The writer, which for operands of 16 bits writes a compute in f32. The results named by `single` stay f32."""

    def write(site: Site) -> Lowered:
        half = next((o.dtype for o in site.operands if o is not None and o.dtype in HALVES), None)
        if half is None:
            return writer(site)
        single_ones = tuple(None if o is None else _single(o) for o in site.operands)
        made = writer(Site(site.node, single_ones, asked=site.asked))
        match made:
            case Viewed():
                own = next((o.dtype for o in site.operands if o is not None and o.name == made.source), made.type.dtype)
                return replace(made, type=replace(made.type, dtype=own))
            case Known():
                wide = np.dtype(np.float32)
                return Known(tuple(v.astype(onnx_dtype(half)) if v.dtype == wide else v for v in made.values))
            case Computed():
                halves = {o.name: o.dtype for o in site.operands if o is not None and o.dtype in HALVES}
                kept = single | {"Y"} if site.attribute("output_dtype") == 1 else single  # float
                return replace(made, definition=_rounded(made, halves, half, kept))

    return write


def _single(o: Operand) -> Operand:
    if o.dtype not in HALVES:
        return o
    value = None if o.value is None else o.value.astype(np.float32)
    return replace(o, type=Tensor("f32", o.shape), value=value)


def _rounded(made: Computed, halves: Mapping[str, str], half: str, single: frozenset[str]) -> Definition:
    """The definition with the parameters of these values of 16 bits, and results of the type `half`."""
    d = made.definition
    narrow = {p.name: halves[v] for p, v in zip(d.parameters, made.arguments, strict=True) if v in halves}
    ends = {r.name for r in d.results if r.type.dtype == "f32"} - single
    (item,) = parse(Source("compute", d.text("f"))).items
    assert isinstance(item, t.ComputeDef)
    used = {n.id for s in item.stages for n in walk(s.value) if isinstance(n, t.Name)}
    stages: list[str] = []

    def read(e: Any) -> Any:
        match e:
            case t.IndexExpr(base=t.Name(id=name), indices=indices) if name in narrow:
                inner = tuple(cast("t.Expr", rewrite_tree(i, read)) for i in indices)
                return t.CallExpr(t.Name("f32", e.span), (replace(e, indices=inner),), (), e.span)
            case t.Name(id=name) if name in narrow:
                return t.CallExpr(t.Name("f32", e.span), (e,), (), e.span)
            case t.Name(id=name) if name in ends:
                return replace(e, id=f"{name}_")
            case _:
                return None

    for s in item.stages:
        value = cast("t.Expr", rewrite_tree(s.value, read))
        name = str(s.name)
        if name not in ends:
            stages.append(format_stage(replace(s, value=value)))
        elif name in used or isinstance(value, t.Scan):
            # Later elements, or other stages, read what is not yet rounded.
            wide = t.Word(f"{name}_", s.name.span)
            stages.append(format_stage(replace(s, name=wide, value=value, is_let=True)))
            at = ", ".join(str(i.name) for i in s.indices)
            stages.append(f"{format_stage(replace(s, value=t.Number(0, s.span))).rpartition(' = ')[0]} = "
                          f"{half}({name}_{f'[{at}]' if at else ''})")  # fmt: skip
        else:
            rounded = t.CallExpr(t.Name(half, s.span), (value,), (), s.span)
            stages.append(format_stage(replace(s, value=rounded)))
    parameters = tuple(replace(p, type=replace(p.type, dtype=narrow.get(p.name, p.type.dtype))) for p in d.parameters)
    results = tuple(
        Parameter(r.name, replace(r.type, dtype=half if r.name in ends else r.type.dtype), False) for r in d.results
    )
    return Definition(parameters, results, tuple(stages), d.finite)
