"""Arbitrary trees of the grammar, as a hypothesis strategy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.format import format_item
from tensorc_dsl.syntax.parse import parse


def items(text: str) -> tuple[t.Item, ...]:
    """The items of a file. Raises TschedError."""
    return parse(Source("x.tsched", text)).items


def parse_expr(text: str) -> t.Expr:
    """The tree of one expression."""
    (task,) = parse(Source("e", f"task t = t(e={text}\n)")).items
    assert isinstance(task, t.TaskDef)
    return task.bindings[0][1]


def format_file(file: t.File) -> str:
    """The text of a file, with empty lines between items; consecutive tasks and uses stand together."""
    out: list[str] = []
    previous: t.Item | None = None
    for item in file.items:
        together = (
            type(item) is type(previous) and isinstance(item, (t.TaskDef, t.UseDecl)) and not getattr(item, "doc", "")
        )
        if previous is not None and not together:
            out.append("\n")
        out.append(format_item(item) + "\n")
        previous = item
    return "".join(out)


SPAN = Span(Source("generated", ""), 0, 0)

NAMES = st.sampled_from(
    "a b x1 Long_name _y i f32 sum max scan init step block reduce program use compute task when with parallel "
    "reducer intrinsic target identity bound desc layout lower requires asm call const try otherwise select like".split()
)
NUMBERS = st.one_of(
    st.integers(0, 2**256 - 1),
    st.floats(0, allow_nan=False, allow_infinity=False).map(abs),
    st.just(math.inf),
)


def node(kind: Callable[..., Any], *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(*parts).map(lambda values: kind(*values, SPAN))


def many(strategy: st.SearchStrategy[Any], least: int = 0, most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


def pairs(a: st.SearchStrategy[Any], b: st.SearchStrategy[Any], least: int = 0) -> st.SearchStrategy[tuple[Any, ...]]:
    return many(st.tuples(a, b), least)


NAME_PATTERN = node(t.NamePattern, st.one_of(NAMES, st.just("_")))
PATTERN = st.one_of(NAME_PATTERN, node(t.ListPattern, many(NAME_PATTERN, 1)))

_LEAVES = st.one_of(
    node(t.Name, NAMES),
    node(t.Number, NUMBERS),
    node(t.String, st.text(max_size=5)),
    node(t.Bool, st.booleans()),
    node(t.Wildcard),
)


def _specs(e: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return node(t.IndexSpec, NAMES, st.one_of(st.none(), e))


def _call(e: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return node(t.CallExpr, e, many(e), pairs(NAMES, e))


def _compare(e: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    ops = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    return st.integers(1, 3).flatmap(lambda n: node(t.CompareExpr, many(ops, n, n), many(e, n + 1, n + 1)))


_NUMBER = node(t.Number, st.integers(0, 999))
SIZES = st.one_of(_NUMBER, node(t.Wildcard), node(t.Name, NAMES), node(t.RangeExpr, _NUMBER, _NUMBER, st.just(())))
"""The sizes of a case, and what is none."""


def stmts(e: st.SearchStrategy[Any], depth: int = 1) -> st.SearchStrategy[tuple[Any, ...]]:
    simple = [
        node(t.Let, PATTERN, e),
        node(t.DrawStmt, NAME_PATTERN, _call(e), st.one_of(st.none(), e)),
        node(t.ExprStmt, e),
        node(t.Yield, e),
    ]
    if depth == 0:
        return many(st.one_of(simple), 0, 2)
    inner = stmts(e, depth - 1)
    weight = st.one_of(st.none(), e)
    unnamed = node(t.Either, st.none(), many(node(t.Branch, st.none(), weight, inner), 2))
    names = st.lists(NAMES, min_size=2, max_size=3, unique=True)
    named = st.tuples(NAMES, names, weight, inner).map(
        lambda of: t.Either(
            t.Word(of[0], SPAN), tuple(t.Branch(t.Word(name, SPAN), of[2], of[3], SPAN) for name in of[1]), SPAN
        )
    )
    maybe = node(t.Maybe, NAMES, weight, inner)
    select = node(t.Select, many(NAMES, 1), many(node(t.Case, many(SIZES, 1), inner), 1))
    parts = node(t.Try, inner, inner), node(t.If, e, inner, inner), select
    return many(st.one_of(*simple, unnamed, named, maybe, *parts), 0, 2)


def _more(e: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    reducers = st.sampled_from("sum prod min max any all argmin argmax logsumexp reduce step identity a".split())
    return st.one_of(
        _in_programs(e),
        node(t.Reduce, reducers, many(_specs(e), 1, 2), _tuple_or(e)),
        node(t.Scan, _specs(e), e, e),
        node(t.ForList, PATTERN, e, st.one_of(st.none(), e), stmts(e)),
    )


def _in_programs(e: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        node(t.ListExpr, many(e)),
        node(t.MapExpr, pairs(e, e, 1)),
        node(t.BinaryExpr, st.sampled_from("+-*/%"), e, e),
        node(t.Negate, e),
        _compare(e),
        node(t.LogicExpr, st.sampled_from(["and", "or"]), e, e),
        node(t.NotExpr, e),
        node(t.Conditional, e, e, e),
        _call(e),
        node(t.IndexExpr, e, many(e, 1)),
        node(t.SliceExpr, e, st.one_of(st.none(), e), st.one_of(st.none(), e)),
        node(t.Attribute, e, NAMES),
        node(t.RangeExpr, e, e, st.just(())),
        node(t.Lambda, many(NAMES), many(e)),
    )


def _tuple_or(e: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(e, node(t.TupleExpr, many(e, 2)))


def _stage(parts: tuple[Any, ...]) -> t.Stage:
    """A stage, and if it has targets, with the first name of these."""
    name, *rest, targets = parts
    repeated = tuple(i.name for n in [n for n in targets if n != "_"][1:] for i in rest[0])
    fields: Any = (next((n for n in targets if n != "_"), name), *rest, targets, repeated, SPAN)
    return t.Stage(*fields)


EXPRS = st.recursive(_LEAVES, _more, max_leaves=12)
SMALL = st.recursive(_LEAVES, _more, max_leaves=3)
PLAIN = st.recursive(_LEAVES, _in_programs, max_leaves=3)

TIMED = st.one_of(
    node(t.RangeExpr, PLAIN, PLAIN, many(PLAIN)),
    st.tuples(PLAIN, PLAIN, PLAIN).map(lambda of: t.RangeExpr(of[0], of[1], (), SPAN, of[2])),
)
"""The sizes of an open dimension, and those it is timed at, or how often they occur."""

DOCS = st.one_of(st.just(""), st.text(st.characters(exclude_categories=["Cs"]), max_size=8)).map(
    lambda doc: "\n".join(line.rstrip() for line in doc.split("\n"))
)
_MAYBE_NAME = st.one_of(st.none(), NAMES)
_MAYBE_EXPR = st.one_of(st.none(), SMALL)
_TYPE = node(t.TensorType, st.sampled_from("f32 T bool step".split()), many(PLAIN, 0, 2))
_TENSOR = node(t.TensorParam, NAMES, _TYPE, st.booleans(), many(PLAIN, 0, 2), _MAYBE_NAME)
_PARAM_TYPE = st.recursive(
    node(t.ParamType, NAMES, st.none()), lambda inner: node(t.ParamType, NAMES, many(inner, 0, 2)), max_leaves=3
)
_PARAM = node(t.Param, NAMES, st.one_of(st.none(), _PARAM_TYPE), _MAYBE_EXPR)
_ANNOTATIONS = pairs(st.text(max_size=3), PLAIN)
_TARGETS = many(st.one_of(NAMES, st.just("_")), 2).filter(lambda names: set(names) != {"_"})
_STAGE = st.tuples(
    NAMES, many(_specs(SMALL)), SMALL, _ANNOTATIONS, st.booleans(), st.one_of(st.just(()), _TARGETS)
).map(_stage)
_OPERAND = node(t.Operand, NAMES, _TYPE, st.one_of(st.none(), st.text(max_size=3)))
_EFFECT = node(t.Effect, NAMES, many(_specs(SMALL)), SMALL, st.booleans())
_LAYOUT = node(t.Layout, st.text(max_size=3), many(NAMES, 1), pairs(NAMES, SMALL, 1))
_TEXT = st.text(max_size=5)
_LOWERING = node(t.Lowering, NAMES, many(_TEXT), st.sampled_from(["asm", "call"]), _TEXT)
_STORE = node(t.StoreStmt, NAMES, many(PLAIN, 0, 2), PLAIN)
_ITER = node(t.IterDecl, st.sampled_from(["spatial", "reduce", "scan"]), NAMES, PLAIN, PLAIN)
_BLOCK = node(t.BlockStmt, NAMES, many(_ITER), many(PLAIN, 0, 2), many(_STORE, 0, 2), many(_STORE), _ANNOTATIONS)
_KINDS = st.sampled_from(["serial", "parallel", "vectorized", "unrolled", "pipelined", "tensorized"])


def _loop(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = (many(node(t.LoopHeader, NAMES, PLAIN), 1), _ANNOTATIONS, many(inner))
    bound = node(t.LoopStmt, st.just("bound"), st.sampled_from(["block.x", "lane", ""]), *parts)
    return st.one_of(node(t.LoopStmt, _KINDS, st.none(), *parts), bound)


_PROGRAM_STMT = st.one_of(_BLOCK, _loop(st.one_of(_BLOCK, _loop(_BLOCK))))


_BUFFER = node(t.BufferDecl, NAMES, _TYPE, st.one_of(st.none(), st.text(max_size=3)), _ANNOTATIONS)


def _program_select(depth: int) -> st.SearchStrategy[Any]:
    none = st.just(())
    cases = node(t.ProgramCase, many(SIZES, 1), many(_BUFFER), many(_PROGRAM_STMT), _ANNOTATIONS, st.none())
    if depth:
        divided = node(t.ProgramCase, many(SIZES, 1), none, none, _ANNOTATIONS, _program_select(depth - 1))
        cases = st.one_of(cases, divided)
    return node(t.ProgramSelect, many(NAMES, 1), many(cases, 1))


def _of_a_name(call: t.CallExpr) -> t.CallExpr:
    return t.CallExpr(t.Name("rule", SPAN), call.args, call.kwargs, SPAN)


ITEMS = st.one_of(
    node(
        t.ComputeDef, NAMES, many(_TENSOR), many(_PARAM), many(_TENSOR, 1), pairs(NAMES, SMALL), many(SMALL),
        many(node(t.Assumption, NAMES, st.one_of(NAMES, node(t.RangeExpr, PLAIN, PLAIN, st.just(()))))), many(_STAGE), DOCS,
    ),
    node(t.ModuleDef, NAMES, many(_PARAM), _MAYBE_EXPR, stmts(SMALL, 2), DOCS),
    node(t.SpaceDef, NAMES, NAMES, many(st.one_of(node(t.Name, NAMES), _call(SMALL).map(_of_a_name))), DOCS),
    node(t.ScheduleDef, NAMES, NAMES, stmts(SMALL, 2), DOCS),
    node(t.TaskDef, NAMES, NAMES, pairs(NAMES, st.one_of(SMALL, TIMED)), many(SMALL), _MAYBE_NAME, DOCS),
    node(
        t.ReducerDef, NAMES, many(NAMES, 1), many(NAMES, 1), _tuple_or(SMALL), _tuple_or(SMALL),
        many(node(t.Name, NAMES)), DOCS,
    ),
    node(t.TargetDef, NAMES, NAMES, pairs(NAMES, SMALL), DOCS),
    node(t.IntrinsicDef, NAMES, many(_OPERAND, 1), many(_EFFECT, 1), many(_LAYOUT), many(_LOWERING), DOCS),
    node(t.UseDecl, many(NAMES, 1), many(NAMES)),
    node(
        t.ProgramDef, NAMES, many(_TENSOR), pairs(NAMES, TIMED), many(PLAIN), many(_BUFFER), many(_PROGRAM_STMT),
        _ANNOTATIONS, st.none(), DOCS,
    ),
    node(
        t.ProgramDef, NAMES, many(_TENSOR), pairs(NAMES, TIMED), many(PLAIN), st.just(()), st.just(()),
        _ANNOTATIONS, _program_select(1), DOCS,
    ),
)  # fmt: skip


FILES = many(ITEMS).map(lambda items: t.File(SPAN.source, items))
