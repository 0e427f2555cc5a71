"""Prints expressions and statements, with no more parentheses than they need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.layout import REDUCERS

# Binding strength, loosest first; the levels of the grammar.
_LOWEST, _OR, _AND, _NOT, _COMPARE, _ADD, _MUL, _UNARY, _POSTFIX = range(9)

INDENT = "    "


def quoted(value: str) -> str:
    """The string literal for a value."""
    out: list[str] = []
    for ch in value:
        if ch in '"\\':
            out.append(f"\\{ch}")
        elif ch in "\n\t\r":
            out.append({"\n": "\\n", "\t": "\\t", "\r": "\\r"}[ch])
        else:
            out.append(ch if ch.isprintable() else f"\\u{{{ord(ch):X}}}")
    return f'"{"".join(out)}"'


def number(value: int | float) -> str:
    return repr(value)


def _list(values: Iterable[t.Expr | t.Rest], pad: str) -> str:
    return ", ".join("..." if isinstance(v, t.Rest) else expr(v, pad) for v in values)


def arguments(args: Iterable[t.Expr], kwargs: Iterable[tuple[str, t.Expr]], pad: str = "") -> str:
    return ", ".join([*(expr(a, pad) for a in args), *(f"{k}={expr(v, pad)}" for k, v in kwargs)])


def index_specs(specs: Iterable[t.IndexSpec], pad: str = "") -> str:
    return ", ".join(s.name if s.extent is None else f"{s.name} in {at(s.extent, _ADD, pad)}" for s in specs)


def expr(e: t.Expr, pad: str = "") -> str:
    """The text of `e`; the lines of a `for` inside it are indented by `pad`."""
    return _expr(e, pad, True)[0]


def at(e: t.Expr, level: int, pad: str, open_end: bool = True) -> str:
    """The text of `e` in a position that requires at least `level`. `open_end`: no text follows that `e` could absorb."""
    text, own = _expr(e, pad, open_end)
    return text if own >= level else f"({_expr(e, pad, True)[0]})"


def sum_level(e: t.Expr) -> str:
    """The text of `e` as an extent, where a comparison needs parentheses."""
    return at(e, _ADD, "")


def condition_level(e: t.Expr) -> str:
    """The text of `e` as a condition among others."""
    return at(e, _OR, "", open_end=False)


def postfix_level(e: t.Expr, pad: str) -> str:
    return at(e, _POSTFIX, pad)


def _expr(e: t.Expr, pad: str, open_end: bool) -> tuple[str, int]:
    match e:
        case t.Name(id=name):
            # `reduce` in front of a name and `[` would begin a reduction.
            return f"({name})" if name == "reduce" else name, _POSTFIX
        case t.Number(value=value):
            return number(value), _POSTFIX
        case t.String(value=value):
            return quoted(value), _POSTFIX
        case t.Bool(value=value):
            return "true" if value else "false", _POSTFIX
        case t.Wildcard():
            return "_", _POSTFIX
        case t.ListExpr(items=items):
            return f"[{_list(items, pad)}]", _POSTFIX
        case t.MapExpr(items=entries):
            return f"{{{', '.join(f'{expr(k, pad)}: {expr(v, pad)}' for k, v in entries)}}}", _POSTFIX
        case t.BinaryExpr(op=op, lhs=a, rhs=b):
            level = _ADD if op in "+-" else _MUL
            return f"{at(a, level, pad, False)} {op} {at(b, level + 1, pad, open_end)}", level
        case t.Negate(operand=a):
            return f"-{at(a, _UNARY, pad, open_end)}", _UNARY
        case t.CompareExpr(ops=ops, operands=operands):
            last = len(ops)
            parts = [at(x, _ADD, pad, open_end and i == last) for i, x in enumerate(operands)]
            return parts[0] + "".join(f" {op} {x}" for op, x in zip(ops, parts[1:], strict=True)), _COMPARE
        case t.LogicExpr(op=op, lhs=a, rhs=b):
            level = _AND if op == "and" else _OR
            return f"{at(a, level, pad, False)} {op} {at(b, level + 1, pad, open_end)}", level
        case t.NotExpr(operand=a):
            return f"not {at(a, _NOT, pad, open_end)}", _NOT
        case t.Conditional(cond=c, then=x, other=y):
            return f"{at(x, _OR, pad, False)} if {at(c, _OR, pad)} else {at(y, _LOWEST, pad)}", _LOWEST
        case t.CallExpr(function=f, args=args, kwargs=kwargs):
            return f"{postfix_level(f, pad)}({arguments(args, kwargs, pad)})", _POSTFIX
        case t.IndexExpr(base=base, indices=indices):
            return f"{_indexed(base, pad)}[{_list(indices, pad)}]", _POSTFIX
        case t.SliceExpr(base=base, low=low, high=high):
            bounds = ("" if bound is None else expr(bound, pad) for bound in (low, high))
            return f"{_indexed(base, pad)}[{':'.join(bounds)}]", _POSTFIX
        case t.Attribute(base=base, name=name):
            return f"{postfix_level(base, pad)}.{name}", _POSTFIX
        case t.Reduce(reducer=r, indices=indices, body=body):
            word = r if r in REDUCERS else f"reduce {r}"
            return f"{word}[{index_specs(indices, pad)}] {expr(body, pad)}", _swallows(open_end)
        case t.Scan(index=i, init=init, step=step):
            return f"scan[{index_specs([i], pad)}] init {expr(init, pad)} step {expr(step, pad)}", _swallows(open_end)
        case t.RangeExpr(low=a, high=b, at=timed):
            sizes = f" at [{_list(timed, pad)}]" if timed else ""
            return f"{at(a, _ADD, pad, False)}..{at(b, _ADD, pad)}{sizes}", _LOWEST
        case t.Lambda(params=params, results=results):
            names = ("..." if isinstance(p, t.Rest) else p for p in params)
            return f"({', '.join(names)}) -> ({_list(results, pad)})", _LOWEST
        case t.ForList(target=target, source=source, cond=c, body=body):
            rounds = expr(source, pad) if c is None else f"{at(source, _OR, pad, False)} if {at(c, _OR, pad)}"
            return f"for {pattern(target)} in {rounds} {block(body, pad)}", _LOWEST
        case _:
            assert_never(e)


def _indexed(base: t.Expr, pad: str) -> str:
    """The text of `base` in front of brackets; `sum[…]` would be a reduction."""
    name = postfix_level(base, pad)
    return f"({name})" if isinstance(base, t.Name) and base.id in (*REDUCERS, "scan") else name


def _swallows(open_end: bool) -> int:
    """The level of an expression that extends as far to the right as it can."""
    return _UNARY if open_end else _LOWEST - 1


def pattern(p: t.Pattern) -> str:
    return p.name if isinstance(p, t.NamePattern) else f"[{', '.join(i.name for i in p.items)}]"


def _weight(weight: t.Expr | None, pad: str) -> str:
    return "" if weight is None else f"({expr(weight, pad)})"


def block(body: tuple[t.Stmt, ...], pad: str) -> str:
    """Statements in braces, one per line."""
    inner = pad + INDENT
    lines = "".join(f"{inner}{stmt(s, inner)}\n" for s in body)
    return f"{{\n{lines}{pad}}}" if body else "{}"


def stmt(s: t.Stmt, pad: str = "") -> str:
    """The text of a statement. Its first line is not indented, the others are indented by `pad`."""
    match s:
        case t.Let(pattern=p, value=value):
            return f"let {pattern(p)} = {expr(value, pad)}"
        case t.DrawStmt(name=name, distribution=d, pin=pin):
            pinned = "" if pin is None else f" := {expr(pin, pad)}"
            return f"let {name.name} ~ {expr(d, pad)}{pinned}"
        case t.ExprStmt(value=value):
            text = expr(value, pad)
            # A line that begins with this word would continue the line above.
            return f"({text})" if text[0] in "-{" else text
        case t.Either(name=name, branches=branches):
            head = "either" if name is None else f"either {name}:"
            return head + " or".join(
                f"{'' if b.name is None else f' {b.name}'}{_weight(b.weight, pad)} {block(b.body, pad)}"
                for b in branches
            )
        case t.Maybe(name=name, chance=chance, body=body):
            return f"maybe{_weight(chance, pad)} {name} {block(body, pad)}"
        case t.Try(body=body, other=other):
            text = f"try {block(body, pad)}"
            return f"{text} otherwise {block(other, pad)}" if other else text
        case t.If(cond=cond, then=then, other=other):
            text = f"if {expr(cond, pad)} {block(then, pad)}"
            if len(other) == 1 and isinstance(other[0], t.If):
                return f"{text} else {stmt(other[0], pad)}"
            return f"{text} else {block(other, pad)}" if other else text
        case t.Yield(value=value):
            return f"yield {expr(value, pad)}"
        case _:
            assert_never(s)
