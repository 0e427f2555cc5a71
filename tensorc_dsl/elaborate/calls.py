"""Calls of computes: finds the dimensions and attributes of the called compute from the arguments' shapes and types."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tensorc_dsl.base.diagnostic import Diagnostic, Note, help_note
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.elaborate import problems
from tensorc_dsl.elaborate.bindings import (
    Environment,
    attribute,
    attribute_kind,
    dimensions,
    extent,
    index_expr,
    require_conditions,
)
from tensorc_dsl.elaborate.names import Library, inside
from tensorc_dsl.elaborate.problems import Invalid
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import DTYPES, DType
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer, fresh
from tensorc_dsl.proof.sets.simplify import simplify
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near
from tensorc_dsl.syntax.traversal import rewrite_tree


@frozen
class Argument:
    """A tensor argument of a call, and its place in the text."""

    buffer: Buffer
    span: Span


# --- the environment of the called compute -----------------------------------------------------------------------------


def call_environment(
    callee: tree.ComputeDef, args: Sequence[Argument], call: tree.CallExpr, outer: Environment
) -> Environment:
    """The environment of `callee` in this call. Raises Invalid if the arguments do not fit it.

    A dimension has the corresponding extent of an argument, or the value that the call gives by name. A dtype attribute has
    the element type of the tensor that uses it, unless the call gives it.
    """
    given = _given(callee, call)
    _check_arguments(callee, args, call)
    inner = Environment(open=outer.open, unbound=outer.unbound)
    dims = dimensions(callee, strides=False)
    for p, a in zip(callee.inputs, args, strict=True):
        for e, size in zip(p.type.shape, a.buffer.shape, strict=True):
            if isinstance(e, tree.Name) and e.id in dims and inner.sizes.get(e.id, ir.ONE) == ir.ONE:
                inner.sizes[e.id] = size
    for name in dims:
        if name in inner.sizes and name in given:
            raise Invalid(problems.NOT_GIVEN(given[name].span, name=name, compute=callee.name))
        if name in given:
            inner.sizes[name] = extent(given[name], outer, f"`{name}`")
        elif name not in inner.sizes:
            raise Invalid(problems.NOT_BOUND(call.span, name=name, compute=callee.name))
    types = {p.type.dtype: a.buffer.dtype for p, a in zip(callee.inputs, args, strict=True)}
    for a in callee.attributes:
        value = given.get(a.name)
        if value is not None:
            _give(a, value, inner, outer)
        elif attribute_kind(a) == "dtype" and a.name in types:
            inner.dtypes[a.name] = types[a.name]
        else:
            attribute(a, None, inner, callee, outer.unbound, [])
    for name, e in callee.where:
        inner.sizes[name] = extent(e, inner, f"`{name}`")
    inner.conditions = outer.conditions
    require_conditions(callee, inner, call.span)
    _check_types(callee, args, inner)
    return inner


def _given(callee: tree.ComputeDef, call: tree.CallExpr) -> dict[str, tree.Expr]:
    known = [*dimensions(callee, strides=False), *(a.name for a in callee.attributes)]
    out: dict[str, tree.Expr] = {}
    for name, value in call.kwargs:
        if name not in known:
            notes = near(name, known, "leave it out")
            raise Invalid(problems.UNKNOWN_BINDING(name.span, compute=callee.name, name=name, notes=notes))
        out[name] = value
    return out


def _give(a: tree.Param, value: tree.Expr, inner: Environment, outer: Environment) -> None:
    match attribute_kind(a), value:
        case "dtype", tree.Name(id=name) if (t := outer.dtypes.get(name) or DTYPES.get(name)) is not None:
            inner.dtypes[a.name] = t
        case "float", tree.Number(value=number):
            inner.floats[a.name] = float(number)
        case "float", tree.Negate(operand=tree.Number(value=number)):
            inner.floats[a.name] = -float(number)
        case "float", tree.Name(id=name) if name in outer.floats:
            inner.floats[a.name] = outer.floats[name]
        case "int", _:
            inner.sizes[a.name] = index_expr(value, outer.sizes)
        case kind, _:
            wanted = {"dtype": "a type", "float": "a number"}.get(kind, kind)
            raise Invalid(problems.NOT_A_KIND(value.span, name=a.name, wanted=wanted, value=f"`{value.span.text}`"))


def _check_arguments(callee: tree.ComputeDef, args: Sequence[Argument], call: tree.CallExpr) -> None:
    if len(args) != len(callee.inputs):
        wanted = f"{len(callee.inputs)} tensor{'s' * (len(callee.inputs) != 1)}"
        usage = f"{callee.name}({', '.join(p.name for p in callee.inputs)})"
        raise Invalid(
            problems.ARGUMENT_COUNT(call.span, compute=callee.name, wanted=wanted, count=len(args), usage=usage)
        )
    for p, a in zip(callee.inputs, args, strict=True):
        wanted, found = len(p.type.shape), len(a.buffer.shape)
        if wanted != found:
            text = a.span.text
            raise Invalid(
                problems.CALLED_WITH_RANK(
                    a.span, param=p.name, compute=callee.name, wanted=wanted, text=text, found=found
                )
            )


def _check_types(callee: tree.ComputeDef, args: Sequence[Argument], inner: Environment) -> None:
    """Raise Invalid if an argument does not fit. One with a single element along a dimension of the result has that element
    everywhere along it; a dimension that is summed over is none of these, since a sum of copies is seldom meant."""
    of_results = {e.id for p in callee.outputs for e in p.type.shape if isinstance(e, tree.Name)}
    for p, a in zip(callee.inputs, args, strict=True):
        wanted, found, text = param_type(p, inner), a.buffer.dtype, a.span.text
        if wanted != found:
            repair = f"convert it: `let t[…] = {wanted}({text}[…])`"
            raise Invalid(
                problems.ARGUMENT_TYPE(
                    a.span, param=p.name, compute=callee.name, wanted=wanted, text=text, found=found, repair=repair
                )
            )
        for n, (e, size) in enumerate(zip(p.type.shape, a.buffer.shape, strict=True)):
            expected = extent(e, inner, f"dimension {n + 1} of `{p.name}`")
            spread = size == ir.ONE and isinstance(e, tree.Name) and e.id in of_results
            if not equal(expected, size) and not spread:
                raise Invalid(
                    problems.ARGUMENT_SHAPE(
                        a.span, position=n + 1, param=p.name, compute=callee.name, wanted=e.span.text,
                        expected=format_expr(expected), text=text, found=format_expr(size),
                    )
                )  # fmt: skip


def _type_repair(type_: tree.TensorType, known: Collection[str]) -> tuple[Note, ...]:
    """The repair for a type of elements that there is not; an attribute stands in another place."""
    name = type_.dtype
    if name in ("int", "float", "dtype") and not type_.shape:
        return (help_note(f"attributes stand behind a `;`: `f(A: f32[N]; pad: {name})`"),)
    return near(name, known, f"the types are {', '.join(DTYPES)}")


def param_type(p: tree.TensorParam, env: Environment) -> DType:
    """The element type of a parameter. Raises Invalid."""
    known = {**DTYPES, **env.dtypes}
    if p.type.dtype not in known:
        raise Invalid(problems.UNKNOWN_TYPE(p.type.span, name=p.type.dtype, notes=_type_repair(p.type, known)))
    return known[p.type.dtype]


def equal(a: ir.Expr, b: ir.Expr) -> bool:
    """Whether two sizes are equal for all sizes of the open dimensions."""
    return a == b or simplify(ir.sub(a, b), {}) == ir.ZERO


# --- trees -------------------------------------------------------------------------------------------------------------


def renamed(stage: tree.Stage, taken: frozenset[str]) -> tree.Stage:
    """The stage with new names for its indices that are in `taken`, the open dimensions of the caller."""
    own = [s for e in inside(stage.value) if isinstance(e, tree.Reduce) for s in e.indices]
    clash = taken & {s.name for s in (*stage.indices, *own)}
    if not clash:
        return stage
    used = {e.id for e in inside(stage.value) if isinstance(e, tree.Name)} | taken | {s.name for s in own}
    names: dict[str, str] = {n: fresh(n, used) for n in sorted(clash)}

    def name(node: Any) -> Any:
        match node:
            case tree.Name(id=n) if n in names:
                return replace(node, id=names[n])
            case tree.IndexSpec(name=n) if n in names:
                return replace(node, name=tree.Word(names[n], n.span))
            case _:
                return None

    return rewrite_tree(stage, name)


# --- the call graph ------------------------------------------------------------------------------------------------------


def called(defn: tree.ComputeDef, library: Library) -> Iterator[tuple[tree.ComputeDef, Span]]:
    """The computes that a compute calls, with the places of the calls."""
    computes = library.seen_by(defn).computes
    for s in defn.stages:
        for e in inside(s.value):
            if isinstance(e, tree.CallExpr) and isinstance(e.function, tree.Name) and e.function.id in computes:
                yield computes[e.function.id], e.span


def stage_call(s: tree.Stage, computes: Collection[str]) -> tree.CallExpr | None:
    """The call of one of the computes that is the whole value of a stage without subscripts; None for other stages."""
    match s:
        case tree.Stage(indices=(), annotations=(), value=tree.CallExpr(function=tree.Name(id=name)) as e):
            return e if name in computes else None
        case _:
            return None


MOST_STAGES = 1024
"""The largest number of stages: calls multiply them, so a few lines could ask for any number."""

MOST_CALLS = 64
"""The largest number of computes each of which calls the next one."""


def recursion(defn: tree.ComputeDef, library: Library) -> Diagnostic | None:
    """The finding for a compute that calls itself, directly or through others, or that reaches others through more calls than
    MOST_CALLS; None if all is well. Each compute of the library is looked into once."""

    def visit(c: tree.ComputeDef, chain: tuple[tree.ComputeDef, ...]) -> int | Diagnostic:
        """The number of calls below a compute, one in the other."""
        known = library.heights.get(id(c))
        if known is not None and known[0] is c:
            return known[1]
        height = 0
        for target, span in called(c, library):
            if any(target is x for x in chain):
                cycle = (*chain, target)[next(n for n, x in enumerate(chain) if x is target) :]
                text = " > ".join(x.name for x in cycle)
                return problems.RECURSIVE(span, name=target.name, chain=text)
            below = visit(target, (*chain, target)) if len(chain) <= MOST_CALLS else MOST_CALLS
            if not isinstance(below, int):
                return below
            if below >= MOST_CALLS:
                return problems.CALLS_TOO_DEEP(span, most=MOST_CALLS)
            height = max(height, below + 1)
        library.heights[id(c)] = c, height
        return height

    found = visit(defn, (defn,))
    return None if isinstance(found, int) else found


_NUMBERS = re.compile(r"(?:_\d+)+(?=_|$)")
"""What `fresh` appends to names that are equal otherwise, also inside of the names that are made from them."""


def block_names(defn: tree.ComputeDef, library: Library, used: Iterable[str]) -> list[str]:
    """The possible names of a compute's blocks: its stages, reductions inside expressions, and the blocks of the computes
    that it calls.

    Of the names that have a number because another block has the name without it, those in `used`. Behind as many names as
    there may be stages, there are no more.
    """
    own: list[str] = []
    inner: dict[str, None] = {}
    left = deque([(defn, "")])
    for _ in range(MOST_STAGES):
        if not left or len(own) + len(inner) >= MOST_STAGES:
            break
        compute, prefix = left.popleft()
        computes = library.seen_by(compute).computes
        outputs = {p.name for p in compute.outputs}
        calls: Counter[str] = Counter()
        for s in compute.stages:
            name = s.name if not prefix else prefix[:-1] if s.name in outputs else prefix + s.name
            whole = stage_call(s, computes)
            if whole is None and prefix:
                inner[name] = None
            elif whole is None:
                own.append(name)
            for e in inside(s.value):
                match e:
                    case tree.Reduce() if e is not s.value:
                        inner[f"{prefix}{e.reducer}_{e.indices[0].name}"] = None
                    case tree.CallExpr(function=tree.Name(id=callee)) if callee in computes:
                        stem = name
                        if e is not whole:
                            stem = f"{prefix}{callee}_{calls[callee]}" if calls[callee] else f"{prefix}{callee}"
                            calls[callee] += 1
                        left.append((computes[callee], f"{stem}_"))
                    case _:
                        pass
    plain = {_NUMBERS.sub("", n) for n in inner}
    return list(dict.fromkeys((*own, *inner, *(n for n in used if _NUMBERS.sub("", n) in plain))))
