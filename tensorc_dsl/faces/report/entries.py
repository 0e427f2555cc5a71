"""Entries of the reference, made from the declarations, for `explain NAME` and the generated pages."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.resources import glossary, stdlib_root
from tensorc_dsl.base.source import Source
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.kinds import LIST, STR, Base, Kind, ListOf, Rule, Signature, show
from tensorc_dsl.elaborate.names import ARG_REDUCERS, REDUCERS, Reducer
from tensorc_dsl.ir.dtypes import BOOL, F32, I32, DType
from tensorc_dsl.ir.expr import Const
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.primitives import ALL_STEPS
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.queries.applicable import asking
from tensorc_dsl.schedule.query import Query
from tensorc_dsl.schedule.step import (
    BlockPattern,
    BlockRef,
    BufferRef,
    IndexMap,
    IntrinsicRef,
    LoopPattern,
    LoopRef,
    NodeRef,
    Primitive,
)
from tensorc_dsl.schedule.trace.distribution import Choices, DrawKind, Interval, Items
from tensorc_dsl.schedule.trace.draws import DRAWS
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import format_item, quoted
from tensorc_dsl.syntax.parse import used_items

# Tables, code and fences in Markdown.


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    cells = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def listing(rows: Iterable[Sequence[str]]) -> str:
    """A Markdown list, for rows whose last cell is a sentence or more; the other cells stand in front of a colon."""
    return "\n".join(f"- {' '.join(row[:-1])}: {row[-1]}" for row in rows)


def code(text: str) -> str:
    return f"`{text}`"


def markdown_fence(text: str) -> str:
    """Text in a fence that no test runs."""
    return f"```text\n{text}\n```"


# Entries of the standard library: every item with its signature, its description and its file.


@frozen
class LibraryFile:
    """A file of the library: its path in a `use`, its place, and its items."""

    path: str
    place: str
    items: tuple[tree.NamedItem, ...]


def library() -> Iterator[LibraryFile]:
    """All files of the library, in the order of their names."""
    root = stdlib_root()
    for file in sorted(root.rglob("*.tsched")):
        place = file.relative_to(root)
        path = ".".join(("std", *place.with_suffix("").parts))
        items = used_items(Source.read(file, place.as_posix())).file.items
        yield LibraryFile(path, place.as_posix(), tuple(i for i in items if not isinstance(i, tree.UseDecl)))


def item_entry(item: tree.NamedItem) -> str:
    """The item's text up to its body, and its description."""
    return f"### `{item.name}`\n\n{markdown_fence(head(item))}\n\n{item.doc}".rstrip()


def head(item: tree.NamedItem) -> str:
    """The item's text up to its body."""
    match item:
        case tree.ModuleDef():
            return format_item(replace(item, doc="", body=())).removesuffix("{}").strip()
        case tree.ComputeDef():
            return format_item(replace(item, doc="", stages=())).removesuffix("{}").strip()
        case _:
            return format_item(replace(item, doc=""))


# Formats the Python signatures of declarations in the syntax of the language.


_NAMES: dict[object, str] = {
    LoopRef: "Loop", BlockRef: "Block", BufferRef: "Buffer", NodeRef: "Node", Program: "Program", IndexMap: "index map",
    int: "int", float: "float", str: "str", bool: "bool", Const: "int", Interval: "lo..hi",
    LoopPattern: "pattern", BlockPattern: "pattern", Choices: "list or map of weights", Items: "list", type(None): "Program",
}  # fmt: skip


def type_text(annotation: object) -> str:
    """The type's name in the reference. Raises KeyError for a type without a name.

    None stands for the whole program or, in a list, for an open factor.
    """
    if len(_alternatives(annotation)) > 1:
        return " or ".join(dict.fromkeys(type_text(part) for part in _alternatives(annotation)))
    if typing.get_origin(annotation) is tuple:
        element = typing.get_args(annotation)[0]
        return f"[{' or '.join('_' if a is type(None) else type_text(a) for a in _alternatives(element))}]"
    return _NAMES[annotation]


def _alternatives(annotation: object) -> tuple[object, ...]:
    """The members of a union type; the type itself if it is none."""
    union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    return typing.get_args(annotation) if union else (annotation,)


def default_text(value: object) -> str:
    match value:
        case None:
            return "_"
        case bool():
            return str(value).lower()
        case str():
            return quoted(value)
        case _:
            return str(value)


def parameters(signature: inspect.Signature) -> str:
    """`loop: Loop, factors: [int or _], *, partial: bool = false`."""
    out: list[str] = []
    for p in signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and "*" not in out and not any(x.startswith("*") for x in out):
            out.append("*")
        star = "*" if p.kind is p.VAR_POSITIONAL else ""
        optional = p.default is None
        annotation = p.annotation
        text = f"{star}{p.name}: {_without_none(annotation) if optional else type_text(annotation)}"
        has_default = p.default is not p.empty and not optional
        out.append(f"{text} = {default_text(p.default)}" if has_default else f"[{text}]" if optional else text)
    return ", ".join(out)


def _without_none(annotation: object) -> str:
    """The annotation without None, for parameters that are optional."""
    return " or ".join(type_text(a) for a in _alternatives(annotation) if a is not type(None))


# Entries of primitives, draws and queries, from their declarations.


SUBJECTS: dict[type, tuple[str, str]] = {
    BlockRef: ("Blocks", "b"),
    LoopRef: ("Loops", "l"),
    BufferRef: ("Buffers", "x"),
    IntrinsicRef: ("Instructions", "instruction"),
    NodeRef: ("Nodes of the graph of a model", "n"),
    Program: ("The program", "p"),
    Target: ("The target", "target"),
}

_CASES = re.compile(r"Cases: (tests/\S+\.md)")


def prose(doc: str) -> str:
    """A docstring as Markdown; a paragraph with an arrow is a rewrite, and is shown in a fence."""
    out: list[str] = []
    for paragraph in doc.split("\n\n"):
        if re.search(r"\s->(\s|$)", paragraph, re.MULTILINE):
            out.append(markdown_fence(paragraph.rstrip()))
        else:
            out.append(_CASES.sub(r"Cases: [\1](../../\1)", paragraph))
    return "\n\n".join(out)


def primitive_entry(p: Primitive, shared: Collection[tuple[str, str]] | None = None) -> str:
    """The entry of a primitive. A page of all describes once the queries that try steps, which are left out there, and the
    refusals `shared` by several steps, codes with messages, which are named.
    """
    result = "" if p.result is type(None) else f" -> {type_text(p.result)}"
    asked = "" if shared is not None else "".join(f"\n{query_call(q)} -> bool" for q in asking(p))
    head = f"### `{p.name}`\n\n{markdown_fence(f'{p.name}({parameters(p.signature)}){result}{asked}')}"
    declared = {(r.code, r.message) for r in p.refusals}
    own = listing([_error(c), plain(message)] for c, message in sorted(declared.difference(shared or ())))
    more = ", ".join(map(_error, sorted({c for c, _ in declared.intersection(shared or ())})))
    refused = own and f"Refused where\n\n{own}"
    return "\n\n".join(filter(None, [head, prose(p.doc), refused, more and f"Refused as other steps are: {more}."]))


def plain(message: str) -> str:
    """A message with its facts as names: `{loop}` is the loop's name. Computed facts have no name."""
    named = re.sub(r"`?\{([a-z_]+)(?::[^{}]*)?\}`?", r"*\1*", message)
    return re.sub(r"`?\{[^}]*\}+`?", "…", named)


def _error(name: str) -> str:
    return f"[{name}](../errors/{name}.md)"


def draw_entry(d: DrawKind) -> str:
    match d.result:
        case result if result is Choices:
            drawn = "one of the values"
        case result if result is Items:
            drawn = "list"
        case result:
            drawn = type_text(result)
    return f"### `{d.name}`\n\n{markdown_fence(f'{d.name}({parameters(d.signature)}) ~> {drawn}')}\n\n{prose(d.doc)}"


def query_call(q: Query) -> str:
    """How a query is asked: `l.tiles(size: int)`."""
    return f"{SUBJECTS[q.subject][1]}.{q.name}" + (f"({parameters(q.signature)})" if q.is_method else "")


def query_row(q: Query) -> list[str]:
    """What a list says of a query: its call, the kind of the answer, and its description."""
    return [code(query_call(q)), type_text(q.result), " ".join(q.doc.split())]


# Entries of functions and methods of the schedule layer, and of reducers and maths functions of the compute layer.


SIGNATURES_HEAD = ("is", "which says")
REDUCERS_HEAD = ("reducer", "over", "of nothing (f32)", "of nothing (i32)")
MATHS_HEAD = ("function", "is")


def _kind(kind: Kind | Rule) -> str:
    match kind:
        case ListOf(element=Base.ANY):
            return "list"
        case ListOf(element=element):
            return f"[{_kind(element)}]"
        case Rule.NUMBER:
            return "int or float"
        case Rule.FIRST | Rule.ELEMENT:
            return "as the argument"
        case _:
            return show(kind).removeprefix("a ").removeprefix("an ").replace("string", "str")


def _call(name: str, s: Signature) -> str:
    parts = [p.name if p.required else f"[{p.name}]" for p in s.positional]
    parts += ["…"] if s.rest else []
    return f"{name}({', '.join((*parts, *(f'{p.name}=…' for p in s.params if p.named)))})"


def signature_rows(signatures: Mapping[str, Signature], before: str = "") -> list[list[str]]:
    """The rows of callables: their call, the kind of the result, and a description."""
    return [[code(before + _call(name, s)), _kind(s.result), s.doc] for name, s in signatures.items()]


def reducer_rows() -> dict[str, list[str]]:
    """For each reducer, the types that it accepts, and its result for an empty range."""
    rows = {
        name: [
            code(name),
            "conditions" if r.on_bool else "numbers",
            *(_identity(r, t) for t in _types(r.on_bool)),
        ]
        for name, r in REDUCERS.items()
    }
    return rows | {name: [code(name), "numbers; gives a position", "refused", "refused"] for name in ARG_REDUCERS}


def _types(on_bool: bool) -> tuple[DType, DType]:
    return (BOOL, BOOL) if on_bool else (F32, I32)


def _identity(reducer: Reducer, dtype: DType) -> str:
    return code(format_expr(reducer.identity(dtype)))


def maths_rows() -> dict[str, list[str]]:
    """For each maths function, its call and a description."""
    letters = ("x", "y", "z")
    return {name: [code(f"{name}({', '.join(letters[: m.count])})"), m.words] for name, m in MATHS.items()}


# Finds the entries for a name: of a primitive, a draw, a query, a function, an item of the standard library, or a term.


_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./|errors\.md)[^)]*\)")


def entries(name: str) -> list[str]:
    """All entries for the name, as Markdown, in the order of the reference; none for an unknown name.

    A query is `loops` or `b.loops`; an item of the library `matmul` or `std.ops.matmul`.
    """
    return [_LINK.sub(r"\1", text) for known, text in _all() if name in known]


def names() -> set[str]:
    """All names that have an entry."""
    return {name for known, _ in _all() for name in known}


@cache
def _all() -> tuple[tuple[tuple[str, ...], str], ...]:
    """Every entry, with the names that select it."""
    return (*_declared(), *_words(), *_library(), *_terms())


def _declared() -> Iterator[tuple[tuple[str, ...], str]]:
    for p in ALL_STEPS.values():
        asked = (n for q in asking(p) for n in _asked(SUBJECTS[q.subject][1], q.name))
        yield (p.name, *asked), f"{primitive_entry(p)}\n\nA step of schedules and modules."
    for d in DRAWS.values():
        yield (d.name,), f"{draw_entry(d)}\n\nA draw of schedules and modules."
    for subject, (title, letter) in SUBJECTS.items():
        for q in (q for q in QUERIES[subject].values() if not q.step):
            rows = [query_row(q)]
            yield _asked(letter, q.name), _rows(q.name, f"{title}: a query", ("query", *SIGNATURES_HEAD), rows)


def _words() -> Iterator[tuple[tuple[str, ...], str]]:
    for name in v.FUNCTIONS:
        rows = signature_rows({name: v.FUNCTIONS[name]})
        yield (name,), _rows(name, "A function of schedules and modules", ("function", *SIGNATURES_HEAD), rows)
    for name, signature in v.COMPOUNDS.items():
        rows = signature_rows({name: signature})
        yield (
            (name, f"can_{name}"),
            _rows(name, "Several steps of schedules and modules", ("call", *SIGNATURES_HEAD), rows),
        )
    for kind, letter in ((STR, "s"), (LIST, "list")):
        for name, signature in v.METHODS[kind].items():
            rows = signature_rows({name: signature}, f"{letter}.")
            yield _asked(letter, name), _rows(name, "A method", ("method", *SIGNATURES_HEAD), rows)
    for name, row in reducer_rows().items():
        yield (name,), _rows(name, "A reducer of computes", REDUCERS_HEAD, [row])
    for name, row in maths_rows().items():
        yield (name,), _rows(name, "A maths function of computes", MATHS_HEAD, [row])


def _library() -> Iterator[tuple[tuple[str, ...], str]]:
    for file in library():
        for item in file.items:
            path, folder = f"{file.path}.{item.name}", file.path.rpartition(".")[0]
            text = f"{item_entry(item)}\n\n`use {file.path}.{{{item.name}}}`, from `stdlib/{file.place}`."
            yield (item.name, path, f"{folder}.{item.name}"), text


def _terms() -> Iterator[tuple[tuple[str, ...], str]]:
    for terms, text in glossary():
        yield terms, f"### {terms[0]}\n\n{text[0].upper()}{text[1:]}."


def _asked(letter: str, name: str) -> tuple[str, str]:
    return name, f"{letter}.{name}"


def _rows(name: str, what: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"### `{name}`\n\n{what}.\n\n{table(head, rows)}"
