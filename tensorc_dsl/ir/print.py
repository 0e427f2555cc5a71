"""Prints programs. The text parses back to an equal program (`ir.parse`), so it is the program's identity."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import assert_never

from tensorc_dsl.ir.dtypes import BOOL, INDEX
from tensorc_dsl.ir.expr import (
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    Var,
    dtype_of,
)
from tensorc_dsl.ir.graph import Graph, format_graph
from tensorc_dsl.ir.maths import CONDITIONS
from tensorc_dsl.ir.program import (
    VIEW,
    Annotation,
    Block,
    Buffer,
    For,
    Intrinsic,
    IterKind,
    LoopKind,
    Program,
    Stmt,
    Store,
    View,
    used_intrinsics,
)
from tensorc_dsl.syntax.format import quoted

# Binding strength, loosest first; a child that binds looser than its position requires gets parentheses.
_SELECT, _OR, _AND, _NOT, _COMPARE, _ADD, _MUL, _NEGATE, _ATOM = range(9)


def _number(value: int | float | bool) -> tuple[str, int]:
    if isinstance(value, bool):
        return ("true" if value else "false"), _ATOM
    if isinstance(value, float):
        if math.isnan(value):
            return "nan", _ATOM  # the language has one NaN: no operation tells two apart
        text = repr(abs(value))
        return (f"-{text}", _NEGATE) if math.copysign(1.0, value) < 0 else (text, _ATOM)
    return str(value), _NEGATE if value < 0 else _ATOM


def _expr(e: Expr) -> tuple[str, int]:
    match e:
        case Const(value=value):
            return _number(value)
        case Var(name=name) | Dim(name=name):
            return name, _ATOM
        case Binary(op="min" | "max" | "xor" as op, lhs=a, rhs=b):
            return f"{op}({format_expr(a)}, {format_expr(b)})", _ATOM
        case Binary(op=op, lhs=a, rhs=b):
            level = _ADD if op in "+-" else _MUL
            return f"{_at(a, level)} {op} {_at(b, level + 1)}", level
        case Compare(op=op, lhs=a, rhs=b):
            if not _has_type(a) and not _has_type(b) and dtype_of(a) != INDEX:
                a = _with_type(a)  # literals alone would be read as subscripts
            return f"{_at(a, _ADD)} {op} {_at(b, _ADD)}", _COMPARE
        case Logic(op=op, lhs=a, rhs=b):
            level = _AND if op == "and" else _OR
            return f"{_at(a, level)} {op} {_at(b, level + 1)}", level
        case Not(operand=a):
            return f"not {_at(a, _NOT)}", _NOT
        case Select(cond=c, then=t, other=o):
            return f"{_at(t, _OR)} if {_at(c, _OR)} else {_at(o, _SELECT)}", _SELECT
        case Cast(operand=a, dtype=t):
            # Literals alone would take the type that they are converted to.
            inner = a if _has_type(a) or dtype_of(a) == t else _with_type(a)
            return f"{t}({format_expr(inner)})", _ATOM
        case Bitcast(operand=a, dtype=t):
            return f"bitcast({t}, {format_expr(a if _has_type(a) else _with_type(a))})", _ATOM
        case Call(function=f, args=args):
            if f in CONDITIONS and not _has_type(args[0]):
                args = tuple(
                    map(_with_type, args)
                )  # the use of a condition does not determine the types of its arguments
            return f"{f}({', '.join(map(format_expr, args))})", _ATOM
        case Load(buffer=b, indices=indices):
            return _access(b, indices), _ATOM
        case _:
            assert_never(e)


def _has_type(e: Expr) -> bool:
    """Whether the text of `e` determines its type, which literals alone do not."""
    match e:
        case Const(dtype=t):
            return t == BOOL
        case Binary(lhs=a, rhs=b) | Select(then=a, other=b):
            return _has_type(a) or _has_type(b)
        case Call(args=args):
            return any(map(_has_type, args))
        case _:
            return True


def _with_type(e: Expr) -> Expr:
    """`e`, which consists of literals, with the type written at the first of them: `f32(1.0) + 2.0`."""
    match e:
        case Const(dtype=t):
            return Cast(e, t)
        case Binary(lhs=a):
            return replace(e, lhs=_with_type(a))
        case Select(then=a):
            return replace(e, then=_with_type(a))
        case Call(args=args):
            return replace(e, args=(_with_type(args[0]), *args[1:]))
        case _:
            return e


def _at(e: Expr, level: int) -> str:
    text, own = _expr(e)
    return text if own >= level else f"({text})"


def _access(buffer: str, indices: tuple[Expr, ...]) -> str:
    return f"{buffer}[{', '.join(map(format_expr, indices))}]" if indices else buffer


def format_expr(e: Expr) -> str:
    """The text of an expression, with no more parentheses than it needs."""
    return _expr(e)[0]


def format_store(s: Store) -> str:
    return f"{'atomic ' * bool(s.atomic)}{_access(s.buffer, s.indices)} = {format_expr(s.value)}"


def _annotations(items: tuple[Annotation, ...]) -> str:
    def value(v: int | float | str | bool) -> str:
        return quoted(v) if isinstance(v, str) else _number(v)[0]

    return "".join(f" @({quoted(k)}, {value(v)})" for k, v in items)


def _merges(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind is LoopKind.SERIAL and not s.annotations


def _stmt(s: Stmt, pad: str) -> list[str]:
    inner = pad + "    "
    if isinstance(s, Block):
        lines = [f"{pad}block {s.name}{_annotations(s.annotations)} {{"]
        for it in s.iters:
            lines.append(f"{inner}{it.kind} {it.name} in {_at(it.extent, _ADD)} = {format_expr(it.binding)}")
        lines += [f"{inner}where {format_expr(c)}" for c in s.where]
        if s.init:
            lines.append(f"{inner}init {{ {'; '.join(map(format_store, s.init))} }}")
        lines += [f"{inner}{format_store(store)}" for store in s.body]
        return [*lines, f"{pad}}}"]
    loops, body = [s], s.body
    while _merges(s) and len(body) == 1 and isinstance(body[0], For) and _merges(body[0]):
        loops.append(body[0])
        body = body[0].body
    heads = ", ".join(f"{loop.var} in {_at(loop.extent, _ADD)}" for loop in loops)
    how = "" if s.kind is LoopKind.SERIAL else f"{s.kind} " if s.axis is None else f"{s.kind}({quoted(s.axis)}) "
    lines = [f"{pad}{how}for {heads}{_annotations(s.annotations)} {{"]
    for child in body:
        lines += _stmt(child, inner)
    return [*lines, f"{pad}}}"]


def format_buffer(b: Buffer) -> str:
    strides = f" strides [{', '.join(map(format_expr, b.strides))}]" if b.strides else ""
    updates = f" updates {b.updates}" if b.updates else ""
    return f"{b.name}: {'const ' * b.constant}{_access(str(b.dtype), b.shape)}{strides}{updates}"


def _ranges(dims: tuple[Dim, ...]) -> str:
    known = [f"{d.name} in {d.low}..{d.high}{format_timed(d)}" for d in dims if d.high is not None]
    known += dict.fromkeys(_at(c, _OR) for d in dims for c in d.where)
    return f" where {', '.join(known)}" if known else ""


def format_timed(d: Dim) -> str:
    """The sizes at which kernels are timed, as the text of a range says them."""
    if d.weights:
        return f" like {{{', '.join(f'{n}: {w!r}' for n, w in zip(d.at, d.weights, strict=True))}}}"
    return f" at [{', '.join(map(str, d.at))}]" if d.at else ""


def format_intrinsic(i: Intrinsic) -> str:
    """The instruction as an `intrinsic` item, with a newline at the end."""
    operands = ", ".join(f"{format_buffer(b)}{_scope(b)}" for b in i.operands)
    place, value, sign = _access(i.store.buffer, i.store.indices), i.store.value, "="
    reduced = [a.name for a in i.axes if a.kind is IterKind.REDUCE]
    match value:
        case Binary(op="+", lhs=Load(buffer=b, indices=at), rhs=rest) if (b, at) == (i.store.buffer, i.store.indices):
            value, sign = rest, "+="
        case _:
            pass
    if reduced:  # a reduction extends to the right over everything but a conditional
        text = f"sum[{', '.join(reduced)}] {_at(value, _OR)}"
    else:
        text = format_expr(value)
    lines = [f"intrinsic {i.name}", f"    desc ({operands}) {{", f"        {place} {sign} {text}", "    }"]
    for x in i.layouts:
        places = ", ".join(f"{name}: {format_expr(e)}" for name, e in x.places)
        lines.append(f"    layout {quoted(x.name)} ({', '.join(x.params)}) -> ({places})")
    for x in i.lowerings:
        requires = f" requires {', '.join(map(quoted, x.requires))}" if x.requires else ""
        lines.append(f"    lower {x.target}{requires} {x.kind} {quoted(x.code)}")
    return "\n".join(lines) + "\n"


def _view(v: View) -> str:
    return f"[{', '.join(v.indices)}] = {_access(v.base, v.places)}"


def _scope(b: Buffer) -> str:
    return "" if b.scope == "global" else f" in {quoted(b.scope)}"


def format_program(p: Program) -> str:
    """The program as a `program` item, after the instructions that it uses, or the graph, with a newline at the end."""
    if isinstance(p, Graph):
        return format_graph(p)
    used = "".join(f"{format_intrinsic(i)}\n" for i in used_intrinsics(p))
    params = ", ".join(map(format_buffer, p.params))
    lines = [f"program {p.name}({params}){_ranges(p.dims)}{_annotations(p.annotations)} {{", *_body(p, "    "), "}"]
    return used + "\n".join(lines) + "\n"


def _body(p: Program, pad: str) -> list[str]:
    lines: list[str] = []
    for b in p.buffers:
        view = () if b.view is None else ((VIEW, _view(b.view)),)
        own = b if b.view is None else replace(b, constant=False)  # its input says that it is
        lines.append(f"{pad}buffer {format_buffer(own)}{_scope(b)}{_annotations((*b.annotations, *view))}")
    for s in p.body:
        lines += _stmt(s, pad)
    if p.cases:
        inner = f"{pad}    "
        lines.append(f"{pad}select {', '.join(p.divided_by)} {{")
        for c in p.cases:
            head = f"{inner}{', '.join(map(format_range, c.sizes))} =>{_annotations(c.program.annotations)} {{"
            lines += [head, *_body(c.program, f"{inner}    "), f"{inner}}}"]
        lines.append(f"{pad}}}")
    return lines


def format_range(sizes: tuple[int, int | None]) -> str:
    """The sizes of a dimension in a case: a number, a range, or `_` where there is no largest one."""
    low, high = sizes
    return "_" if high is None else str(low) if low == high else f"{low}..{high}"
