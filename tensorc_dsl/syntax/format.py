"""Prints a tree: `parse(format_file(tree)) == tree`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.layout import REDUCERS

# Prints expressions and statements, with no more parentheses than they need.


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
        case t.TupleExpr(items=items):
            return f"({_list(items, pad)})", _POSTFIX
        case t.RangeExpr(low=a, high=b, at=timed, like=like):
            sizes = f" at [{_list(timed, pad)}]" if timed else "" if like is None else f" like {expr(like, pad)}"
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
        case t.Select(names=names, cases=cases):
            inner = pad + INDENT
            lines = "".join(f"{inner}{case_head(c.sizes, inner)} {block(c.body, inner)}\n" for c in cases)
            return f"select {', '.join(names)} {{\n{lines}{pad}}}"
        case t.Yield(value=value):
            return f"yield {expr(value, pad)}"
        case _:
            assert_never(s)


def case_head(sizes: Iterable[t.Expr], pad: str = "") -> str:
    """The sizes of a case and what follows them: `2..16, _ =>`."""
    return f"{', '.join(expr(e, pad) if isinstance(e, t.RangeExpr) else at(e, _ADD, pad) for e in sizes)} =>"


def expression_text(e: t.Expr) -> str:
    """The text of an expression, with no more parentheses than it needs."""
    return expr(e)


def _doc(item: t.Item) -> str:
    if isinstance(item, t.UseDecl) or not item.doc:
        return ""
    return "".join(f"/// {line}\n" if line else "///\n" for line in item.doc.split("\n"))


def format_item(item: t.Item) -> str:
    """The text of one item with its description, without a newline at the end."""
    return _doc(item) + _item(item)


def _item(item: t.Item) -> str:
    match item:
        case t.ComputeDef():
            return _compute(item)
        case t.ReducerDef(before=a, following=b, combine=combine, identity=identity, assumes=assumes):
            laws = f" assume {', '.join(law.id for law in assumes)}" if assumes else ""
            return f"reducer {item.name}({_names(a)}, {_names(b)}) = {expr(combine)} identity {expr(identity)}{laws}"
        case t.IntrinsicDef():
            return _intrinsic(item)
        case t.TargetDef(name=name, kind=kind, facts=facts):
            return f"target {name} = {kind}({arguments((), facts)})"
        case t.ConstDef(name=name, value=value):
            return f"const {name} = {expr(value)}"
        case t.ModuleDef(name=name, params=params, when=when, body=body):
            head = f"module {name}({_params(params)})"
            return f"{head} {block(body, '')}" if when is None else f"{head}\nwhen {expr(when)}\n{block(body, '')}"
        case t.SpaceDef(name=name, target=target, rules=rules):
            lines = "".join(f"{INDENT}{postfix_level(r, INDENT)}\n" for r in rules)
            return f"space {name} for {target} {{\n{lines}}}" if rules else f"space {name} for {target} {{}}"
        case t.ScheduleDef(name=name, compute=compute, body=body):
            return f"schedule {name} for {compute} {block(body, '')}"
        case t.PriorDef(name=name, of=of, weights=weights):
            lines = "".join(f"{INDENT}{w.draw} ~ {expr(w.weights, INDENT)}\n" for w in weights)
            return f"prior {name} for {of} {{\n{lines}}}" if weights else f"prior {name} for {of} {{}}"
        case t.TaskDef(name=name, compute=compute, bindings=bindings, conditions=conditions, with_=chosen):
            text = f"task {name} = {compute}({arguments((), bindings)})"
            text += f" where {', '.join(map(condition_level, conditions))}" if conditions else ""
            return f"{text} with {chosen}" if chosen else text
        case t.ModelDef():
            return _model(item)
        case t.UseDecl(path=path, names=names):
            return f"use {'.'.join(path)}" + (f".{{{', '.join(names)}}}" if names else "")
        case t.ProgramDef():
            return _program(item)
        case _:
            assert_never(item)


def _params(params: Iterable[t.Param]) -> str:
    def one(p: t.Param) -> str:
        typed = p.name if p.type is None else f"{p.name}: {p.type}"
        return typed if p.default is None else f"{typed} = {expr(p.default)}"

    return ", ".join(map(one, params))


def _type(tensor: t.TensorType) -> str:
    return f"{tensor.dtype}[{', '.join(map(expr, tensor.shape))}]" if tensor.shape else tensor.dtype


def _tensors(params: Iterable[t.TensorParam]) -> str:
    def one(p: t.TensorParam) -> str:
        strides = f" strides [{', '.join(map(expr, p.strides))}]" if p.strides else ""
        return (
            f"{p.name}: {'const ' * p.constant}{_type(p.type)}{strides}{f' updates {p.updates}' if p.updates else ''}"
        )

    return ", ".join(map(one, params))


def _compute(c: t.ComputeDef) -> str:
    inputs, attributes, outputs = _tensors(c.inputs), _params(c.attributes), _tensors(c.outputs)
    head = f"compute {c.name}({inputs}{'; ' if attributes else ''}{attributes}) -> {outputs}"
    sizes = [*(f"{name} = {expr(value)}" for name, value in c.where), *map(condition_level, c.conditions)]
    said = [
        f"{a.name} in {expr(a.says)}" if isinstance(a.says, t.RangeExpr) else f"{a.name} {a.says}" for a in c.assumes
    ]
    head += "\nwhere " + ",\n      ".join(sizes) if sizes else ""
    head += "\nassume " + ",\n       ".join(said) if said else ""
    head += "\n" if sizes or said else " "
    lines = "".join(f"{INDENT}{format_stage(s)}\n" for s in c.stages)
    return f"{head}{{\n{lines}}}" if lines else f"{head}{{}}"


def _model(m: t.ModelDef) -> str:
    head = f"model {m.name}({_tensors(m.inputs)}) -> {_tensors(m.outputs)}"
    if (w := m.weights) is not None:
        head += f"\nweights {quoted(w.path)} sha256 {quoted(w.sha256)} ({_tensors(w.tensors)})\n"
    else:
        head += " "
    lines = "".join(f"{INDENT}{format_stage(s)}\n" for s in m.calls)
    return f"{head}{{\n{lines}}}" if lines else f"{head}{{}}"


def format_stage(s: t.Stage) -> str:
    """The text of a stage of a compute, or of a call of a model."""
    let = "let " if s.is_let else ""
    places = f"{s.name}{_indices(s.indices)}"
    if s.targets:
        bare = _indices(tuple(replace(i, extent=None) for i in s.indices))
        first = s.targets.index(s.name)
        shown = (places if k == first else n if n == "_" else f"{n}{bare}" for k, n in enumerate(s.targets))
        places = f"({', '.join(shown)})"
    return f"{let}{places}{_annotations(s.annotations)} = {expr(s.value, INDENT)}"


def _names(names: tuple[t.Word, ...]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _indices(indices: tuple[t.IndexSpec, ...]) -> str:
    return f"[{index_specs(indices)}]" if indices else ""


def _intrinsic(i: t.IntrinsicDef) -> str:
    operands = ", ".join(f"{o.name}: {_type(o.type)}{_scope(o.layout)}" for o in i.operands)
    inner = INDENT * 2
    lines = [f"intrinsic {i.name}", f"{INDENT}desc ({operands}) {{"]
    for e in i.effects:
        sign = "+=" if e.adds else "="
        lines.append(f"{inner}{e.name}{_indices(e.indices)} {sign} {expr(e.value, inner)}")
    lines.append(f"{INDENT}}}")
    for x in i.layouts:
        places = ", ".join(f"{name}: {expr(value, INDENT)}" for name, value in x.places)
        lines.append(f"{INDENT}layout {quoted(x.name)} ({', '.join(x.params)}) -> ({places})")
    for x in i.lowerings:
        requires = f" requires {', '.join(map(quoted, x.requires))}" if x.requires else ""
        lines.append(f"{INDENT}lower {x.target}{requires} {x.kind} {quoted(x.code)}")
    return "\n".join(lines)


def _annotations(items: Iterable[tuple[str, t.Expr]]) -> str:
    return "".join(f" @({quoted(key)}, {expr(value)})" for key, value in items)


def _scope(name: str | None) -> str:
    return "" if name is None else f" in {quoted(name)}"


def _program(p: t.ProgramDef) -> str:
    sizes = ", ".join([*(f"{name} in {expr(value)}" for name, value in p.sizes), *map(condition_level, p.conditions)])
    head = f"program {p.name}({_tensors(p.params)}){' where ' if sizes else ''}{sizes}"
    return "\n".join([f"{head}{_annotations(p.annotations)} {{", *_program_body(p, INDENT), "}"])


def _program_body(p: t.ProgramDef | t.ProgramCase, pad: str) -> list[str]:
    lines: list[str] = []
    for b in p.buffers:
        lines.append(f"{pad}buffer {b.name}: {_type(b.type)}{_scope(b.scope)}{_annotations(b.annotations)}")
    for s in p.body:
        lines += _program_stmt(s, pad)
    if p.select is not None:
        inner = pad + INDENT
        lines.append(f"{pad}select {', '.join(p.select.names)} {{")
        for c in p.select.cases:
            head = f"{inner}{case_head(c.sizes)}{_annotations(c.annotations)} {{"
            lines += [head, *_program_body(c, inner + INDENT), f"{inner}}}"]
        lines.append(f"{pad}}}")
    return lines


def _program_stmt(s: t.ProgramStmt, pad: str) -> list[str]:
    inner = pad + INDENT
    match s:
        case t.LoopStmt(kind=kind, axis=axis, loops=loops, annotations=annotations, body=body):
            how = "" if kind == "serial" else f"{kind} " if axis is None else f"{kind}({quoted(axis)}) "
            headers = ", ".join(f"{h.name} in {sum_level(h.extent)}" for h in loops)
            lines = [f"{pad}{how}for {headers}{_annotations(annotations)} {{"]
            for child in body:
                lines += _program_stmt(child, inner)
        case t.BlockStmt(name=name, iters=iters, where=where, init=init, body=body, annotations=annotations):
            lines = [f"{pad}block {name}{_annotations(annotations)} {{"]
            lines += [f"{inner}{i.kind} {i.name} in {sum_level(i.extent)} = {expr(i.binding)}" for i in iters]
            lines += [f"{inner}where {expr(c)}" for c in where]
            if init:
                lines.append(f"{inner}init {{ {'; '.join(map(_store, init))} }}")
            lines += [f"{inner}{_store(store)}" for store in body]
        case _:
            assert_never(s)
    return [*lines, f"{pad}}}"]


def _store(s: t.StoreStmt) -> str:
    indices = f"[{', '.join(map(expr, s.indices))}]" if s.indices else ""
    return f"{s.buffer}{indices} = {expr(s.value)}"
