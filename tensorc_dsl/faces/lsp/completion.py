"""Completion: what can be written at the cursor."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import Parameter
from itertools import permutations, product

from lsprotocol import types as lsp

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.resources import stdlib_names
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.items import FACTS
from tensorc_dsl.check.kinds import ANY, PARAM_TYPES, Kind, ModuleOf, of_module, show, usage
from tensorc_dsl.check.positions import ATTRIBUTE_TYPES, computes_names
from tensorc_dsl.elaborate.bindings import dimensions
from tensorc_dsl.elaborate.views import ABOUT, VIEW
from tensorc_dsl.faces.lsp.analysis import Analysis
from tensorc_dsl.faces.lsp.commands import program_before
from tensorc_dsl.faces.lsp.cursor import Cursor, around, callee_of_call, cursor
from tensorc_dsl.faces.lsp.parts import Piece
from tensorc_dsl.faces.lsp.records import Records
from tensorc_dsl.faces.packages import Resolver, SearchFolder
from tensorc_dsl.ir.dtypes import DTYPES
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.ir.program import For, Program, blocks
from tensorc_dsl.ir.program import walk as program_walk
from tensorc_dsl.ir.target import GRAPH, kinds
from tensorc_dsl.schedule.primitive import accepts
from tensorc_dsl.schedule.step import PRIMITIVES, BlockRef, BufferRef, LoopRef, Primitive, Ref
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.layout import REDUCERS
from tensorc_dsl.syntax.parse import parse_items
from tensorc_dsl.syntax.traversal import walk

# Which primitives apply to the program as it stands at the cursor.


SECONDS = 0.03
"""For so long primitives are tried: an editor waits for the answer."""


def applicable(program: Program, clock: Callable[[], float] = time.monotonic) -> dict[str, bool]:
    """By primitive whether it applies to some loops, blocks and buffers of the program.

    What needs other values than these, and what was not tried in time, is not in it.
    """
    until = clock() + SECONDS
    found: dict[str, bool] = {}
    for name, primitive in PRIMITIVES.items():
        choices = _applicable_arguments(program, primitive)
        if choices is None:
            continue
        for arguments in choices:
            if clock() > until:
                return found
            if accepts(program, name, *arguments):
                found[name] = True
                break
        else:
            found[name] = False
    return found


def _applicable_arguments(program: Program, primitive: Primitive) -> Iterator[tuple[Ref, ...]] | None:
    """What the primitive can be given of the program; None if it needs something else."""
    parameters = [p for p in primitive.signature.parameters.values() if p.default is Parameter.empty]
    kinds = [_kinds(p.annotation) for p in parameters]
    if not all(kinds):
        return None
    every = _refs(program)
    if any(p.kind is Parameter.VAR_POSITIONAL for p in parameters):
        return iter(permutations([r for r in every if isinstance(r, kinds[0])], 2))
    return product(*([r for r in every if isinstance(r, kind)] for kind in kinds))


def _kinds(annotation: object) -> tuple[type[Ref], ...]:
    """The kinds of names that a parameter takes."""
    members = getattr(annotation, "__args__", (annotation,))
    return tuple(kind for kind in (LoopRef, BlockRef, BufferRef) if kind in members)


def _refs(program: Program) -> list[Ref]:
    """The innermost loops first: most steps are about them."""
    loops = [LoopRef(s.var) for _, s in program_walk(program.body) if isinstance(s, For)]
    buffers = [BufferRef(b.name) for b in (*program.params, *program.buffers)]
    return [*reversed(loops), *(BlockRef(b.name) for b in blocks(program)), *buffers]


_K = lsp.CompletionItemKind

ITEMS: dict[str, str] = {
    "compute": "compute ${1:name}(${2:A: f32[M]}) -> ${3:B: f32[M]} {\n    $0\n}",
    "schedule": "schedule ${1:name} for ${2:compute} {\n    $0\n}",
    "module": "module ${1:name}(${2:b: Block}) {\n    $0\n}",
    "space": "space ${1:name} for ${2:llvm} {\n    $0\n}",
    "task": "task ${1:name} = ${2:compute}($0)",
    "model": "model ${1:name}(${2:x: f32[M]}) -> ${3:y: f32[M]} {\n    $0\n}",
    "use": "use ${0:std.cpu}",
    "const": "const ${1:name} = $0",
    "reducer": "reducer ${1:name}(a, b) = $0 identity ${2:0}",
    "target": "target ${1:name} = ${2:llvm}($0)",
    "prior": "prior ${1:name} for ${2:space} {\n    $0\n}",
    "program": "program ${1:name}($2) {\n    $0\n}",
    "intrinsic": "intrinsic ${1:name}\n    desc ($2) { $0 }",
}
"""The items of a file, each as a text with places to fill in."""

STATEMENTS = ("let", "if", "either", "maybe", "try", "select", "for", "yield")
PARTS = ("else", "or", "otherwise")
"""Words with which a statement goes on behind a `}`."""
EXPRESSIONS = ("true", "false", "not", "if", "else", "and", "or", "for")

Items = Iterator[lsp.CompletionItem]


def completion(analysis: Analysis, position: lsp.Position, snippets: bool, records: Records) -> lsp.CompletionList:
    """What can stand at the position, each once. `snippets`: whether the editor fills in places of a text.

    Primitives that apply to the program there come first; `records` have the decisions of its draws.
    """
    offset = analysis.text.offset(position)
    piece = analysis.piece_at(offset)
    text, base = (piece.part.text, piece.start) if piece is not None else ("", 0)
    at = cursor(text, offset - base)
    found: Iterable[lsp.CompletionItem] = (
        () if at.silent else _all(analysis, piece, at, offset - base, snippets, records)
    )
    once: dict[str, lsp.CompletionItem] = {}
    for item in found:
        once.setdefault(item.label, item)
    return lsp.CompletionList(False, list(once.values()))


def _all(
    analysis: Analysis, piece: Piece | None, at: Cursor, offset: int, snippets: bool, records: Records
) -> Iterable[lsp.CompletionItem]:
    line = at.line
    if at.head == "use" and (line[:1] == ("use",) or at.open):
        return _used(analysis, tuple(str(w) for w in at.before if w.type != "NEWLINE"), at)
    if at.last == "." and piece is not None:
        return _parts(around(analysis, piece, at, offset).of)
    if at.in_body and at.head not in ("space", "compute", "target", "program", "intrinsic", "prior", "model"):
        return _complete_body(analysis, piece, at, offset, records)
    match at.head:
        case "compute" | "reducer" | "program" | "intrinsic":
            return _complete_compute(analysis, piece, at)
        case "space" if at.in_body:
            return (*_arguments(analysis, at), *_rules(analysis))
        case "task":
            return _complete_task(analysis, at)
        case "model" if at.in_body:
            return _named(analysis.checked.computes, _K.Function)
        case "schedule" if "for" in line:
            return _named(analysis.checked.computes, _K.Function)
        case "space" if "for" in line:
            return (*_words((*kinds(), GRAPH), _K.Struct), *_named(analysis.checked.targets, _K.Struct))
        case "prior" if "for" in line and not at.in_body:
            c = analysis.checked
            return (*_named(c.spaces, _K.Class), *_named(c.schedules, _K.Class))
        case "module" if at.last == ":" or (
            at.last in "(," and at.call is not None and at.call.name in ("Module", "list")
        ):
            return _words(PARAM_TYPES, _K.Class)
        case "module":
            return (*_words(("when",), _K.Keyword), *_complete_body(analysis, piece, at, offset, records))
        case "target" if at.call is not None:
            return _words(FACTS, _K.Property, "{}=")
        case "target":
            return _words(kinds(), _K.Struct)
        case _:
            return _items(snippets)


# --- places ----------------------------------------------------------------------------------------------------------


def _items(snippets: bool) -> Items:
    for word, text in ITEMS.items():
        form = lsp.InsertTextFormat.Snippet if snippets else None
        yield lsp.CompletionItem(word, kind=_K.Keyword, insert_text=text if snippets else word, insert_text_format=form)


def _used(analysis: Analysis, line: tuple[str, ...], at: Cursor) -> Items:
    """The next part of the path of a `use`, or the names that its files have."""
    path = tuple(w for w in line[1:] if w.isidentifier())
    if at.open:
        yield from _importable(analysis, path[: len(path) - len(_listed(at))], frozenset(_listed(at)))
        return
    known = path if line[-1:] == (".",) else path[:-1]
    yield from _words(sorted(_places(analysis.resolver, (*known, "_"))), _K.Module)


def _listed(at: Cursor) -> list[str]:
    """The names in the braces of a `use`."""
    return [str(w) for w in at.before[at.open[-1] :] if str(w).isidentifier()]


def _importable(analysis: Analysis, path: tuple[str, ...], listed: frozenset[str]) -> Items:
    """What the files of a path have, but for what is listed already."""
    try:
        sources = analysis.resolver(path, analysis.checked.source).sources if path else ()
    except TschedError:
        return  # a diagnostic reports that there is no such path
    for source in sources:
        for item in parse_items(source).file.items:
            if not isinstance(item, t.UseDecl | t.TaskDef | t.ModelDef | t.ProgramDef) and item.name not in listed:
                yield lsp.CompletionItem(str(item.name), kind=_kind_of(item), documentation=_markdown(item.doc))


def _places(resolver: Resolver, path: tuple[str, ...]) -> set[str]:
    """The names that can stand last in the path of a `use`."""
    if path[0] == "std":
        return set(stdlib_names(path[1:-1]))
    own, files = SearchFolder(resolver.folder, "its folder"), resolver.files
    try:
        found = {n for place in (own, *resolver.shared) for n in place.names(path, files)}
    except TschedError:
        found = set(own.names(path, files))
    found.discard(resolver.file.stem)
    return {n for n in found if n.isidentifier()} | ({"std"} if len(path) == 1 else set())


def _parts(kind: Kind | None) -> Items:
    """The queries and the methods of a value of a kind, of all kinds if it is not known."""
    of = ANY if kind is None else kind
    tables = v.ATTRIBUTES if of == ANY else {of: v.ATTRIBUTES.get(of, {})}
    for subject, table in tables.items():
        for name, a in table.items():
            yield lsp.CompletionItem(
                name, kind=_K.Property, detail=f"{show(a.kind)}, of {show(subject)}", documentation=_markdown(a.doc)
            )
    for name, signatures in v.methods_of(of).items():
        detail = usage(name, signatures[0]).strip("`")
        yield lsp.CompletionItem(name, kind=_K.Method, detail=detail, documentation=_markdown(signatures[0].doc))


def _complete_body(analysis: Analysis, piece: Piece | None, at: Cursor, offset: int, records: Records) -> Items:
    line = at.line
    if at.last == "~":
        yield from _callables(v.DISTRIBUTIONS, _K.Function)
        return
    if line[:1] == ("let",) and not {"=", "~"} & set(line):
        return  # a name of one's own
    yield from _arguments(analysis, at)
    bound = set(re.split(r"[=~]", " ".join(line))[0].split()) if line[:1] == ("let",) else set[str]()
    if piece is not None:
        for name, kind in around(analysis, piece, at, offset).names.items():
            if name in bound:
                continue
            detail = None if kind is None or kind == ANY else show(kind)
            yield lsp.CompletionItem(name, kind=_K.Variable, detail=detail, sort_text=f"1{name}")
    if not line:
        yield from _words(STATEMENTS, _K.Keyword)
        if at.last == "}":
            yield from _words(PARTS, _K.Keyword)
    else:
        yield from _words(EXPRESSIONS, _K.Keyword)
    if _wants_module(analysis, at):
        yield from _rules(analysis, modules_only=True)
    if at.call is None or line[:1] == ("let",):
        yield from _steps(analysis, piece, offset, records)
        yield from _rules(analysis, modules_only=True)
    yield from _callables(v.FUNCTIONS, _K.Function)
    yield from _words(v.GIVEN, _K.Variable)


def _steps(analysis: Analysis, piece: Piece | None, offset: int, records: Records) -> Items:
    """The primitives: those that apply to the program here first, and those that do not last."""
    applies: dict[str, bool] = {}
    if piece is not None:
        word = re.search(r"\w*$", piece.part.text[:offset])
        assert word is not None
        program = program_before(analysis, piece.start + word.start(), records)
        applies = {} if program is None else applicable(program)
    for item in _callables({**v.STEPS, **v.COMPOUNDS}, _K.Function):
        known = applies.get(item.label)
        item.sort_text = f"{'3' if known is None else '2' if known else '4'}{item.label}"
        if known is False:
            item.detail = f"{item.detail}, which applies to nothing here"
        yield item


def _arguments(analysis: Analysis, at: Cursor) -> Items:
    """The names of the parameters that the open call does not have yet."""
    call = at.call
    if call is None or call.keyword:
        return
    target = callee_of_call(analysis, call)
    if target is None:
        return
    for p in target.parameters:
        if p.can_be_named and p.name not in call.named and not (p.position is not None and p.position < call.given):
            yield lsp.CompletionItem(f"{p.name}=", kind=_K.Property, detail=p.text, sort_text=f"0{p.name}")


def _wants_module(analysis: Analysis, at: Cursor) -> bool:
    """Whether the argument that is written is a module, by the parameters of the module that is called."""
    call = at.call
    if call is None or call.is_method or call.name not in analysis.checked.modules:
        return False
    params = of_module(analysis.checked.modules[call.name]).params
    by_name = (
        [p for p in params if p.name == call.keyword] if call.keyword else list(params[call.given : call.given + 1])
    )
    return any(isinstance(kind, ModuleOf) for p in by_name for kind in p.wanted)


def _rules(analysis: Analysis, modules_only: bool = False) -> Items:
    c = analysis.checked
    yield from _named({n: m for n, m in c.modules.items() if "." not in n}, _K.Function)
    if not modules_only:
        yield from _named(c.spaces, _K.Class)


def _complete_task(analysis: Analysis, at: Cursor) -> Items:
    c = analysis.checked
    if at.last == "with":
        yield from _named(c.schedules, _K.Class)
        yield from _named(c.spaces, _K.Class)
    elif (call := at.call) is not None and (compute := c.computes.get(call.name)) is not None:
        names = dict.fromkeys((*map(str, dimensions(compute)), *(str(a.name) for a in compute.attributes)))
        yield from _words([n for n in names if n not in call.named], _K.Property, "{}=")
    elif at.last == "=":
        yield from _named(c.computes, _K.Function)
    elif at.last == ")":
        yield from _words(("with",), _K.Keyword)


def _complete_compute(analysis: Analysis, piece: Piece | None, at: Cursor) -> Items:
    if at.last == ":" and not at.in_body:
        yield from _words((*map(str, DTYPES), *ATTRIBUTE_TYPES, "const"), _K.Class)
        return
    for item in piece.items if piece is not None else ():
        if isinstance(item, t.ComputeDef):
            yield from _words(computes_names(item), _K.Variable)
            yield from _words({str(n.name) for n in walk(item) if isinstance(n, t.IndexSpec)}, _K.Variable)
    # Of a compute that cannot be read, the words that it has.
    if piece is not None and not piece.items:
        yield from _words({str(w) for w in at.before if w.type == "NAME"}, _K.Variable)
    if not at.in_body:
        yield from _words(("where",), _K.Keyword)
        return
    if not at.line:
        yield from _words(("let",), _K.Keyword)
    for name, m in MATHS.items():
        yield lsp.CompletionItem(name, kind=_K.Function, detail=m.words)
    yield from _words(REDUCERS, _K.Operator)
    yield lsp.CompletionItem(VIEW, kind=_K.Function, detail=ABOUT)
    yield from _words(("scan", "reduce", "if", "else", "and", "or", "not", "inf", "nan"), _K.Keyword)
    yield from _words(map(str, DTYPES), _K.Class)
    seen = analysis.checked.library.files.get(analysis.checked.source.name)
    if seen is not None:
        yield from _named(seen.computes, _K.Function)
        yield from _named(seen.reducers, _K.Function)


# --- entries ---------------------------------------------------------------------------------------------------------


def _markdown(doc: str) -> lsp.MarkupContent | None:
    return lsp.MarkupContent(lsp.MarkupKind.Markdown, doc) if doc else None


def _words(words: Iterable[str], kind: lsp.CompletionItemKind, form: str = "{}") -> Items:
    for word in words:
        yield lsp.CompletionItem(form.format(word), kind=kind)


def _callables(table: Mapping[str, object], kind: lsp.CompletionItemKind) -> Items:
    for name, signature in table.items():
        assert isinstance(signature, v.Signature)
        doc = signature.doc.split("\n\n")[0]
        yield lsp.CompletionItem(
            name, kind=kind, detail=usage(name, signature).strip("`"), documentation=_markdown(doc)
        )


def _named(items: Mapping[str, t.NamedItem], kind: lsp.CompletionItemKind) -> Items:
    for name, item in items.items():
        doc = item.doc
        yield lsp.CompletionItem(name, kind=kind, documentation=_markdown(doc))


def _kind_of(item: t.NamedItem) -> lsp.CompletionItemKind:
    match item:
        case t.SpaceDef() | t.ScheduleDef() | t.PriorDef():
            return _K.Class
        case t.TargetDef():
            return _K.Struct
        case t.ConstDef():
            return _K.Constant
        case _:
            return _K.Function
