"""Prints a tree: `parse(format_file(tree)) == tree`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.format_expr import (
    INDENT,
    arguments,
    block,
    condition_level,
    expr,
    index_specs,
    postfix_level,
    quoted,
    sum_level,
)


def format_expr(e: t.Expr) -> str:
    """The text of an expression, with no more parentheses than it needs."""
    return expr(e)


def format_file(file: t.File) -> str:
    """The text of a file, with empty lines between items; consecutive tasks and uses stand together."""
    out: list[str] = []
    previous: t.Item | None = None
    for item in file.items:
        together = type(item) is type(previous) and isinstance(item, (t.TaskDef, t.UseDecl)) and not _doc(item)
        if previous is not None and not together:
            out.append("\n")
        out.append(format_item(item) + "\n")
        previous = item
    return "".join(out)


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
        case t.ReducerDef(name=name, params=(a, b), combine=combine, identity=identity, assumes=assumes):
            laws = f" assume {', '.join(law.id for law in assumes)}" if assumes else ""
            return f"reducer {name}({a}, {b}) = {expr(combine)} identity {expr(identity)}{laws}"
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
        case t.TaskDef(name=name, compute=compute, bindings=bindings, with_=chosen):
            text = f"task {name} = {compute}({arguments((), bindings)})"
            return f"{text} with {chosen}" if chosen else text
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
    lines = "".join(f"{INDENT}{_stage(s)}\n" for s in c.stages)
    return f"{head}{{\n{lines}}}" if lines else f"{head}{{}}"


def _stage(s: t.Stage) -> str:
    let = "let " if s.is_let else ""
    return f"{let}{s.name}{_indices(s.indices)}{_annotations(s.annotations)} = {expr(s.value, INDENT)}"


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
    sizes = ", ".join(f"{name} in {expr(value)}" for name, value in p.sizes)
    head = f"program {p.name}({_tensors(p.params)}){' where ' if sizes else ''}{sizes}"
    lines = [f"{head}{_annotations(p.annotations)} {{"]
    for b in p.buffers:
        lines.append(f"{INDENT}buffer {b.name}: {_type(b.type)}{_scope(b.scope)}{_annotations(b.annotations)}")
    for s in p.body:
        lines += _program_stmt(s, INDENT)
    return "\n".join([*lines, "}"])


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
