"""The Python interface, from the sources: signatures as they are written, and docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import tensorc_dsl
from tensorc_dsl.faces.report.entries import markdown_fence

SECTIONS = {
    "Files, tasks and kernels": "load loads TaskFile Task Kernel Bound",
    "Models": """import_onnx from_torch load_model LoadedModel tune_model ModelTuning TunedTask TunedWay TuningDisplay
        profile_model ModelProfile ModelGroup TimedCall compare_model ModelComparison OutputDifference Runtime
        Arrangement Form""",
    "Searches": """SearchOptions SearchChanges Objective SearchResult TuneResult Outcome Status Regret Prediction Refused
        ScheduleRefusal Unkept Trial Known Origin Recorded Forecast Drawn Given""",
    "Functions of your own": "tune_function FunctionResult FunctionTrial",
    "What is learnt of draws": "Insight Importance Learnt Value Pin",
    "Schedules": "Trace Draw Decision Distribution Model Site Decider",
    "Proofs": "Report Valid Invalid Unproved",
    "Errors": "TschedError UnknownTask NoValidCandidate WrongSchedule Diagnostic Note Severity Source Span",
    "Other machines": """connect Board MachineChange Target Emulated Counts Code CompiledKernel KernelLibrary LoadedKernel
        LoweredKernel""",
}
"""The names that are described, by their section."""

PASSED_ON = "Backend CheckedFile Files Param Plan Pool Program Queue Registers Roof Sizes Space StrPath TaskDef"
"""The names of which a sentence is enough: a program gets such values and passes them on."""

MODULES = {"handlers": "tensorc_dsl.schedule.trace.handlers", "events": "tensorc_dsl.tuning.search.events"}

Node = ast.ClassDef | ast.FunctionDef | ast.Assign


def names() -> str:
    """A line for each name, by section, then the modules. Raises ValueError for a public name that no section has."""
    named = [*" ".join((*SECTIONS.values(), PASSED_ON)).split(), *MODULES, "__version__"]
    if sorted(named) != sorted(tensorc_dsl.__all__):
        raise ValueError(f"SECTIONS and tensorc_dsl.__all__ differ: {set(named) ^ set(tensorc_dsl.__all__)}")
    sections = {**SECTIONS, "Values that are passed on": " ".join(sorted(PASSED_ON.split()))}
    out: list[str] = []
    for title, some in sections.items():
        out.append(f"## {title}")
        out.append("\n".join(f"- `{name}`: {_first(*_found('tensorc_dsl', name))}" for name in some.split()))
    out.append("## Modules")
    out.append("\n".join(f"- `{n}`: {_first_paragraph(ast.get_docstring(_tree(m)))}" for n, m in MODULES.items()))
    return "\n\n".join(out)


def interface() -> str:
    """The sections, with declarations and docstrings, then the modules."""
    out: list[str] = []
    for title, names in SECTIONS.items():
        out.append(f"## {title}")
        for name in names.split():
            out += _entry(*_found("tensorc_dsl", name))
    out.append("## Values that are passed on")
    out.append("\n".join(f"- `{name}`: {_first(*_found('tensorc_dsl', name))}" for name in sorted(PASSED_ON.split())))
    for name, home in MODULES.items():
        out.append(f"## The module `{name}`")
        out.append(_first_paragraph(ast.get_docstring(_tree(home))))
        for node, doc in _declared(home):
            out += _entry(node, doc)
    return "\n\n".join(out)


@cache
def _tree(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _statements(module: str) -> Iterator[tuple[ast.stmt, str]]:
    """The statements of a module at any depth of its conditions, each with the text behind it."""
    body = _tree(module).body
    body = [inner for s in body for inner in (s.body if isinstance(s, ast.If) else [s])]
    for statement, after in zip(body, [*body[1:], None], strict=True):
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            text = " ".join(after.value.value.split())
        yield statement, text


def _found(module: str, name: str) -> tuple[Node, str]:
    """The declaration of a name that a module has, and its docstring. Raises KeyError if there is none."""
    for statement, text in _statements(module):
        match statement:
            case ast.ImportFrom(module=str(home), names=names):
                if any((n.asname or n.name) in (name, "*") for n in names):
                    return _found(home, name)
            case ast.ClassDef() | ast.FunctionDef():
                if statement.name == name:
                    return statement, ast.get_docstring(statement) or ""
            case ast.Assign(targets=[ast.Name(id=id_)]) if id_ == name:
                return statement, text
            case _:
                pass
    raise KeyError(f"{module}.{name}")


def _declared(module: str) -> Iterator[tuple[Node, str]]:
    """The public classes, functions and types that a module declares; those that its `__all__` has, if it has one."""
    listed: set[str] | None = None
    for statement, _ in _statements(module):
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            listed = set(ast.literal_eval(statement.value))
    for statement, text in _statements(module):
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                doc = ast.get_docstring(statement) or ""
            case ast.Assign(targets=[ast.Name(id=name)]):
                doc = text
            case _:
                continue
        if not name.startswith("_") and (listed is None or name in listed):
            yield statement, doc


def _entry(node: Node, doc: str) -> Iterator[str]:
    """A heading, the declaration, its docstring, and the methods."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]):
            yield f"### `{name}`"
            yield markdown_fence(ast.unparse(node))
        case ast.FunctionDef():
            yield f"### `{node.name}`"
            yield markdown_fence(_signature(node))
        case ast.ClassDef():
            yield f"### `{node.name}`"
            bases = [ast.unparse(b) for b in node.bases]
            fields = [ast.unparse(s) for s in node.body if isinstance(s, ast.AnnAssign) and s.target != ast.Name("_")]
            members = [ast.unparse(s) for s in node.body if isinstance(s, ast.Assign)] if "StrEnum" in bases else []
            head = f"class {node.name}({', '.join(bases)})" if bases else f"class {node.name}"
            yield markdown_fence(
                "\n".join((head, *(f"    {line}" for line in (*fields, *members) if not line.startswith("_"))))
            )
        case _:
            raise AssertionError(ast.dump(node))
    if doc:
        yield doc
    if isinstance(node, ast.ClassDef) and (attributes := _attributes(node)):
        yield f"Attributes: {', '.join(f'`{a}`' for a in attributes)}."
    if isinstance(node, ast.ClassDef) and (methods := [m for s in node.body if (m := _method(s))]):
        yield "\n".join(methods).rstrip()


def _attributes(node: ast.ClassDef) -> list[str]:
    """The public attributes that the initialiser of a class sets."""
    init = [s for s in node.body if isinstance(s, ast.FunctionDef) and s.name == "__init__"]
    targets = [t for i in init for s in i.body if isinstance(s, ast.Assign) for t in s.targets]
    return [t.attr for t in targets if isinstance(t, ast.Attribute) and not t.attr.startswith("_")]


SPECIAL = {"__call__", "__getitem__", "__str__"}


def _method(statement: ast.stmt) -> str:
    """An entry of the list of methods; empty for what is not public."""
    if not isinstance(statement, ast.FunctionDef) or (statement.name.startswith("_") and statement.name not in SPECIAL):
        return ""
    decorators = {ast.unparse(d) for d in statement.decorator_list}
    if "property" in decorators:
        shown = f"{statement.name}: {ast.unparse(statement.returns)}" if statement.returns else statement.name
    else:
        shown = _signature(statement, method="staticmethod" not in decorators)
    doc = ast.get_docstring(statement) or ""
    indented = "\n".join(f"  {line}".rstrip() for line in doc.splitlines())
    return f"- `{shown}`\n\n{indented}\n" if doc else f"- `{shown}`\n"


def _signature(node: ast.FunctionDef, method: bool = False) -> str:
    arguments = ast.unparse(node.args)
    if method:
        arguments = arguments.partition(", ")[2] if "," in arguments else ""
        arguments = arguments.removeprefix("/, ")
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({arguments}){result}"


def _first(node: Node, doc: str) -> str:
    """The first sentence of a docstring, or the type that a name is short for."""
    paragraph = _first_paragraph(doc)
    if isinstance(node, ast.Assign):
        return f"`{ast.unparse(node.value)}`" + (f". {paragraph}" if paragraph else "")
    return paragraph


def _first_paragraph(doc: str | None) -> str:
    return " ".join((doc or "").partition("\n\n")[0].split())
