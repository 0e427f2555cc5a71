"""What stands around a place in a text that may be half typed: words, open brackets, the call that is being written; and
the answers about it, hover and signature help.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lsprotocol import types as lsp

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.kinds import ANY, Kind, Listener, ModuleOf, Parameter, Signature, show, show_all
from tensorc_dsl.check.positions import Entry, Files, Written, listen
from tensorc_dsl.elaborate.bindings import dimensions
from tensorc_dsl.faces.lsp.analysis import Analysis, Found, Meaning, kind_of, meaning
from tensorc_dsl.faces.lsp.parts import Piece, read_part
from tensorc_dsl.faces.lsp.records import Records
from tensorc_dsl.faces.report.entries import entries, head
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.ir.print import format_buffer
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.layout import Token
from tensorc_dsl.syntax.parse import all_words

_CLOSER = {"LPAR": ")", "LSQB": "]", "LBRACE": "}"}
_CLOSERS = frozenset(("RPAR", "RSQB", "RBRACE"))

WORDS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


@frozen
class Call:
    """A call whose bracket is open: the word in front, whether a point stands before it, and what has been written.

    `at` is the offset of the word, `given` the number of arguments before the one that is being written, `keyword` the name
    in front of it, and `named` the names that others have.
    """

    name: str
    at: int
    is_method: bool
    given: int
    keyword: str
    named: frozenset[str]


@frozen
class Cursor:
    """`before` are the words before the cursor without the one that it ends, `prefix`; `open` are the open brackets."""

    before: tuple[Token, ...]
    prefix: str
    silent: bool
    """Whether it stands in a comment or a string."""
    open: tuple[int, ...]
    """Positions of open brackets among the words, outermost first."""

    @property
    def last(self) -> str:
        """The text of the word before, newlines left out; empty at the start."""
        return next((str(w) for w in reversed(self.before) if w.type != "NEWLINE"), "")

    @property
    def line(self) -> tuple[str, ...]:
        """The words since the statement began."""
        out: list[str] = []
        for w in reversed(self.before):
            if w.type in ("NEWLINE", "SEMICOLON", "LBRACE", "RBRACE"):
                break
            out.append(str(w))
        return tuple(reversed(out))

    @property
    def head(self) -> str:
        """The first word of the item: what kind of item it is."""
        return next((str(w) for w in self.before if w.type not in ("NEWLINE", "COMMENT")), "")

    @property
    def in_body(self) -> bool:
        return any(self.before[n].type == "LBRACE" for n in self.open)

    @property
    def call(self) -> Call | None:
        """The innermost call that is open, looking through lists in its arguments."""
        for n in reversed(self.open):
            word = self.before[n]
            if word.type == "LBRACE":
                return None
            if word.type != "LPAR" or n == 0 or self.before[n - 1].type in _NO_CALL:
                continue
            return self._call(n)
        return None

    def _call(self, n: int) -> Call:
        name = self.before[n - 1]
        depth = given = 0
        named: set[str] = set()
        start = n + 1
        for k in range(n + 1, len(self.before)):
            kind = self.before[k].type
            depth += (kind in _CLOSER) - (kind in _CLOSERS)
            if depth == 0 and kind == "COMMA":
                given, start = given + 1, k + 1
            if depth == 0 and kind == "EQUAL" and k > n + 1:
                named.add(str(self.before[k - 1]))
        now = self.before[start : start + 2]
        keyword = str(now[0]) if len(now) == 2 and now[1].type == "EQUAL" else ""
        is_method = n >= 2 and self.before[n - 2].type == "DOT"
        return Call(str(name), name.start_pos, is_method, given, keyword, frozenset(named - {keyword}))

    def closing(self, since: int) -> str:
        """The brackets that close what is open since an offset."""
        return "".join(_CLOSER[self.before[n].type] for n in reversed(self.open) if self.before[n].start_pos >= since)


_NO_CALL = frozenset(
    "EQUAL COMMA LPAR LSQB COLON ARROW AND OR NOT IF ELSE IN NEWLINE PLUS MINUS STAR SLASH PERCENT".split()
)


def cursor(text: str, offset: int) -> Cursor:
    """What stands before an offset of a part."""
    start = offset
    while start > 0 and text[start - 1] in WORDS:
        start -= 1
    words = all_words(text)
    before: list[Token] = []
    open_: list[int] = []
    silent = False
    for n, (kind, begin, end) in enumerate(zip(words.kinds, words.starts, words.ends, strict=True)):
        if begin >= start:
            break
        token = words.token(n)
        silent = kind in ("COMMENT", "DOC") and begin < offset <= end
        silent |= (kind == "STRING" and offset < end) or (
            kind == "BAD" and token == '"' and "\n" not in text[begin:offset]
        )
        if kind in ("COMMENT", "DOC"):
            continue
        if kind in _CLOSER:
            open_.append(len(before))
        elif kind in _CLOSERS and open_:
            open_.pop()
        before.append(token)
        if silent:
            break
    return Cursor(tuple(before), text[start:offset], silent, tuple(open_))


# The callee of an incomplete call: its parameters and its documentation.


@frozen
class Parameters:
    """A parameter as it is shown; `position` is None for one that is given by its name only."""

    name: str
    text: str
    position: int | None
    can_be_named: bool = True
    many: bool = False


@frozen
class Callee:
    name: str
    parameters: tuple[Parameters, ...]
    doc: str


def callee_of_call(analysis: Analysis, call: Call, local: Kind | None = None) -> Callee | None:
    """What an open call calls; None for a name that nothing has. `local` is the kind of the name in the body."""
    name, c = call.name, analysis.checked
    if call.is_method:
        known = v.methods_of(ANY).get(name)
        return None if known is None else _of_signature(name, known[0])
    signature = v.STEPS.get(name) or v.FUNCTIONS.get(name) or v.DISTRIBUTIONS.get(name)
    module = next((m for n, m in c.modules.items() if n == name), None)
    if signature is None and module is not None:
        texts = [(p, str(p.name)) for p in module.params]
        return Callee(name, tuple(Parameters(n, p.span.text, k) for k, (p, n) in enumerate(texts)), module.doc)
    signature = signature or v.COMPOUNDS.get(name)
    if signature is not None:
        return _of_signature(name, signature)
    if isinstance(local, ModuleOf):
        return _of_signature(name, Signature(local.params, None, local.keywords))
    compute = c.computes.get(name)
    if compute is not None:
        return _of_compute(compute)
    maths = MATHS.get(name)
    if maths is not None:
        letters = ("x", "y", "z")[: maths.count]
        return Callee(name, tuple(Parameters(x, x, n, False) for n, x in enumerate(letters)), maths.words)
    return None


def _of_signature(name: str, s: Signature) -> Callee:
    shown = [
        Parameters(p.name, _text(p), None if p.named else n, s.keywords)
        for n, p in enumerate((*s.positional, *_named(s)))
    ]
    if s.rest is not None:
        shown.insert(len(s.positional), Parameters(s.rest.name, f"…{s.rest.name}", len(s.positional), False, many=True))
    return Callee(name, tuple(shown), s.doc)


def _named(s: Signature) -> tuple[Parameter, ...]:
    return tuple(p for p in s.params if p.named)


def _text(p: Parameter) -> str:
    wanted = show_all(p.wanted) if p.wanted != (ANY,) else ""
    kind = f": {wanted}" if wanted else ""
    return f"{p.name}{kind}" if p.required else f"[{p.name}{kind}]"


def _of_compute(c: t.ComputeDef) -> Callee:
    """A compute as a task binds it: its sizes and attributes, all by name."""
    sizes = [Parameters(str(n), f"{n}: size", None) for n in dimensions(c)]
    return Callee(str(c.name), (*sizes, *(Parameters(str(a.name), a.span.text, None) for a in c.attributes)), c.doc)


# The names in scope at a place of an incomplete text, and the receiver of a query there.


HERE = "zz_the_name_being_written"
"""Stands for the name at the cursor; no file has it."""


@dataclass(slots=True)
class Around(Listener):
    """What is known of the place where HERE stands; None and no names if the place cannot be read."""

    names: dict[str, Kind | None] = field(default_factory=dict[str, "Kind | None"])
    of: Kind | None = None
    """The kind of the value before the point in front of it."""
    _is_seen: bool = False

    def named(self, at: Span, name: str, places: tuple[Span, ...], kind: Kind) -> None:
        # What is bound further below does not hold here.
        if name != HERE and not self._is_seen:
            self.names[name] = kind

    def unknown(self, at: Span, scope: Iterable[str]) -> None:
        if at.text == HERE:
            self._is_seen = True
            self.names = {name: self.names.get(name) for name in scope}

    def part(self, at: Span, kind: Kind) -> None:
        if at.text == HERE:
            self.of = kind


def around(analysis: Analysis, piece: Piece, at: Cursor, offset: int) -> Around:
    """What is known at an offset of a piece, in which a name may be half written."""
    found = Around()
    for text in _texts(piece.part.text, at, offset):
        again = read_part(piece.part.name, text)
        for item in again.items:
            if isinstance(item, t.ModuleDef | t.SpaceDef | t.ScheduleDef) and HERE in item.span.text:
                listen(analysis.checked, item, found)
                return found
    return found


def _texts(text: str, at: Cursor, offset: int) -> Iterable[str]:
    """The text with a name at the cursor: without the rest of the line, its brackets closed; whole; with a body."""
    start, end = offset - len(at.prefix), offset
    while end < len(text) and text[end] in WORDS:
        end += 1
    line = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    rest = text[stop:] if stop >= 0 else ""
    yield f"{text[:start]}{HERE}{at.closing(line)}{rest}"
    yield f"{text[:start]}{HERE}{text[end:]}"
    yield f"{text[:start]}{HERE}{at.closing(line)} {{ }}{rest}"


# Hover: what a name is, with its type and its description.


MOST_TASKS = 4
"""The number of tasks whose shapes are shown."""


def hover(
    analysis: Analysis, position: lsp.Position, records: Records, users: Iterable[Analysis] = ()
) -> lsp.Hover | None:
    """What the name at a position is; None where nothing is known."""
    found = analysis.name_at(analysis.text.offset(position))
    if found is None:
        return None
    text = "\n\n".join(_about(analysis, found, records, users))
    if not text:
        return None
    markup = lsp.MarkupContent(lsp.MarkupKind.Markdown, text)
    return lsp.Hover(markup, analysis.text.range(found.start, found.end))


def _head(item: t.NamedItem) -> str:
    match item:
        case t.SpaceDef(name=name, target=target):
            return f"space {name} for {target}"
        case t.ScheduleDef(name=name, compute=compute):
            return f"schedule {name} for {compute}"
        case _:
            return head(item)


def fenced(text: str) -> str:
    return f"```tsched\n{text}\n```"


def _about(analysis: Analysis, found: Found, records: Records, users: Iterable[Analysis]) -> Iterator[str]:
    match found.definition:
        case Entry() as entry:
            yield word(entry)
        case Files(sources=sources):
            yield "\n".join(f"- `{s.name}`" for s in sources)
        case Written() as written:
            known = meaning(analysis, written)
            if known is not None:
                yield from _written(analysis, found, known, records, users)


def word(entry: Entry) -> str:
    """What a word of the language is, as Markdown."""
    owner, _, own = entry.name.rpartition(".")
    match entry.kind:
        case "primitive" | "draw" | "function" | "query" | "method" | "reducer":
            return "\n\n---\n\n".join(entries(entry.name)) or entry.doc
        case "parameter":
            return "\n\n".join((f"parameter `{own}` of `{owner}`", *entries(owner)[:1]))
        case "given":
            return f"`{entry.name}`: {show(v.GIVEN[entry.name])}, which every body has"
        case "fact":
            return f"`{entry.name}`, a fact of a target"
        case kind:
            return f"{kind} `{entry.name}`"


def _written(
    analysis: Analysis, found: Found, known: Meaning, records: Records, users: Iterable[Analysis]
) -> Iterator[str]:
    item, node = known.item, known.node
    match node:
        case t.TensorParam() | t.Stage():
            yield fenced(node.span.text.partition("\n")[0].rstrip())
            yield from _shapes(analysis, item, str(node.name))
        case t.Param():
            yield fenced(node.span.text)
            yield f"a parameter of `{item.name}`"
        case t.DrawStmt():
            yield fenced(node.span.text)
            yield from _kind(analysis, found)
            yield from records.told(analysis, node, users)
        case t.Maybe() | t.Either() | t.Branch():
            yield fenced(node.span.text.partition("\n")[0].rstrip())
            if not isinstance(node, t.Branch):
                yield from records.told(analysis, node, users)
        case t.Let() | t.ForList():
            yield fenced(node.span.text.partition("\n")[0].rstrip())
            yield from _kind(analysis, found)
        case None:
            yield f"`{found.reference.name}` of `{item.name}`"
        case _:
            yield fenced(_head(node))
            if node.doc:
                yield node.doc
            if isinstance(node, t.TaskDef):
                yield from records.about(analysis, node)


def _kind(analysis: Analysis, found: Found) -> Iterator[str]:
    span = found.reference.span
    kind = kind_of(analysis, analysis.item_at(found.start), span)
    if kind is not None and kind != ANY:
        yield f"`{found.reference.name}`: {show(kind)}"


def _shapes(analysis: Analysis, item: t.NamedItem, name: str) -> Iterator[str]:
    """The types that a tensor has in the tasks of its compute."""
    lines: list[str] = []
    for task in analysis.checked.tasks.values():
        program = analysis.checked.elaborated.get(str(task.name))
        if program is None or task.compute != item.name or not isinstance(item, t.ComputeDef):
            continue
        buffers = {b.name: b for b in (*program.params, *program.buffers)}
        if name in buffers:
            lines.append(f"- in `{task.name}`: `{format_buffer(buffers[name])}`")
    if lines:
        more = [f"- and {len(lines) - MOST_TASKS} more"] if len(lines) > MOST_TASKS else []
        yield "\n".join([*lines[:MOST_TASKS], *more])


# Signature help: the parameters of the call that is being written.


def signature_help(analysis: Analysis, position: lsp.Position) -> lsp.SignatureHelp | None:
    """The call around the position, and which of its parameters is being written; None outside of calls."""
    offset = analysis.text.offset(position)
    piece = analysis.piece_at(offset)
    if piece is None:
        return None
    at = cursor(piece.part.text, offset - piece.start)
    call = None if at.silent else at.call
    local = None if call is None else around(analysis, piece, at, offset - piece.start).names.get(call.name)
    target = None if call is None else callee_of_call(analysis, call, local)
    if call is None or target is None:
        return None
    label, parameters = f"{target.name}(", list[lsp.ParameterInformation]()
    for n, p in enumerate(target.parameters):
        label += ", " if n else ""
        start = len(label)
        label += p.text
        # Labels are ASCII but for the ellipsis, of which each encoding that editors count in has one unit or more.
        parameters.append(
            lsp.ParameterInformation(p.text if analysis.text.encoding != "utf-16" else (start, len(label)))
        )
    doc = lsp.MarkupContent(lsp.MarkupKind.Markdown, target.doc) if target.doc else None
    active = _active(target, call)
    signature = lsp.SignatureInformation(f"{label})", doc, parameters, active)
    return lsp.SignatureHelp([signature], 0, active)


def _active(target: Callee, call: Call) -> int | None:
    if call.keyword:
        return next((n for n, p in enumerate(target.parameters) if p.name == call.keyword), None)
    for n, p in enumerate(target.parameters):
        if p.position == call.given or (p.many and p.position is not None and p.position <= call.given):
            return n
    return None
