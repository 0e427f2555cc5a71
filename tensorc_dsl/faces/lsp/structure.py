"""What a document is made of: symbols, of all files by name, folding, selection ranges, and the one layout.

A text is formatted item by item, and the layout of an item is kept: after an edit only the items that changed are
formatted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from lsprotocol import types as lsp

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.faces.lsp.analysis import Analysis, Text
from tensorc_dsl.faces.lsp.documents import Documents
from tensorc_dsl.faces.lsp.parts import Piece, Symbol, Where
from tensorc_dsl.faces.lsp.protocol import Json, Ready
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.fmt import apart, format_read, format_text
from tensorc_dsl.syntax.parse import item_starts, read
from tensorc_dsl.syntax.traversal import walk

KEPT = 8192
"""The number of parts of texts of which the layout is kept."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a text, from its first line on. `after` is its layout, with the empty line above it if there is one."""

    first: int
    before: str
    after: str


def formatting(text: str, within: lsp.Range | None = None) -> list[lsp.TextEdit]:
    """The edits, by whole lines, or those that touch lines of a range; none for a text that does not parse, of which the
    diagnostics tell."""
    edits: list[lsp.TextEdit] = []
    for part in _pieces(text) or _whole(text):
        if part.before != part.after:
            edits += _edits(text, part)
    return edits if within is None else [e for e in edits if _touches(e.range, within)]


def _whole(text: str) -> list[_Part]:
    """The text as one part; none if it does not parse."""
    try:
        return [_Part(0, text, format_text(Source("<text>", text)))]
    except TschedError:
        return []


def _pieces(text: str) -> list[_Part]:
    """The items of a text, each with the comments above it; none if one of them does not parse by itself."""
    out: list[_Part] = []
    line, last = 0, ""
    for before in _cut(text):
        found = _layout(before)
        if found is None:
            return []
        kind, final, after = found
        blank = bool(last) and (apart(last, kind) or not before.partition("\n")[0].strip())
        out.append(_Part(line, before, f"\n{after}" if blank else after))
        line, last = line + before.count("\n"), final
    return out


def _cut(text: str) -> Iterator[str]:
    """The texts of the items. The lines above an item that are empty or comments belong to it."""
    lines = _lines(text)
    ends = [0]
    for line in lines:
        ends.append(ends[-1] + len(line))
    number = {end: n for n, end in enumerate(ends)}
    begin = 0
    for start in item_starts(text):
        n = number.get(start, 0)
        while n > 0 and _is_between(lines[n - 1]):
            n -= 1
        if ends[n] > begin:
            yield text[begin : ends[n]]
            begin = ends[n]
    yield text[begin:]


def _is_between(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("//")


@lru_cache(maxsize=KEPT)
def _layout(text: str) -> tuple[str, str, str] | None:
    """The kinds of the first and of the last item of a text, and its layout; None if it does not parse, or has no item."""
    try:
        found = read(Source("<text>", text))
    except TschedError:
        return None
    kinds = [item.data for item in found.words.children if item is not None and not isinstance(item, str)]
    return (kinds[0], kinds[-1], format_read(found)) if kinds else None


def _edits(text: str, part: _Part) -> Iterator[lsp.TextEdit]:
    """The edits of one part."""
    old, new = _lines(part.before), _lines(part.after)
    # Lines that only change are edits of their own, so that one of them can be formatted alone. Most change in blanks.
    before, then = (["".join(x.split()) for x in lines] for lines in (old, new))
    for _, a, b, c, d in SequenceMatcher(None, before, then).get_opcodes():
        parts = [(n, n + 1, n - a + c, n - a + c + 1) for n in range(a, b)] if b - a == d - c else [(a, b, c, d)]
        changed = [part for part in parts if old[part[0] : part[1]] != new[part[2] : part[3]]]
        for a, b, c, d in changed:
            yield lsp.TextEdit(_place(text, part, old, a, b), "".join(new[c:d]))


def _touches(edit: lsp.Range, within: lsp.Range) -> bool:
    """Whether an edit changes a line of the range, whose last one counts if something of it is chosen."""
    last = within.end.line - (within.end.character == 0 and within.end.line > within.start.line)
    return edit.start.line <= last and within.start.line < max(edit.end.line, edit.start.line + 1)


def _lines(text: str) -> list[str]:
    """The lines with their ends. Only LF ends a line, as in the editor."""
    lines = text.split("\n")
    return [*(f"{line}\n" for line in lines[:-1]), *(lines[-1:] if lines[-1] else [])]


def _place(text: str, part: _Part, old: list[str], first: int, last: int) -> lsp.Range:
    start = lsp.Position(part.first + first, 0)
    if last < len(old) or part.before.endswith("\n") or not old:
        return lsp.Range(start, lsp.Position(part.first + last, 0))
    return lsp.Range(start, Text(Source("", text)).position(len(text)))


# Symbols: the items of a document with their parts, and those of all files by name.


_K = lsp.SymbolKind

MOST = 256
"""The number of symbols of all files that one answer has."""

KINDS: dict[type, lsp.SymbolKind] = {
    t.ComputeDef: _K.Function, t.ReducerDef: _K.Operator, t.IntrinsicDef: _K.Interface, t.ModuleDef: _K.Method,
    t.SpaceDef: _K.Namespace, t.ScheduleDef: _K.Class, t.PriorDef: _K.Class, t.TaskDef: _K.Event, t.TargetDef: _K.Struct,
    t.ConstDef: _K.Constant, t.ModelDef: _K.Package, t.ProgramDef: _K.Module,
}  # fmt: skip


def symbols(analysis: Analysis) -> Ready:
    """The items, each with its tensors, stages, parameters and draws."""
    return Ready(_json(s, p.part.above) for p in analysis.pieces for s in _symbols(p, analysis.text.encoding))


def _json(symbol: Symbol, above: int) -> Json:
    """A `DocumentSymbol` of a part with so many lines above it."""
    detail = {"detail": symbol.detail} if symbol.detail else {}
    return {
        "name": symbol.name,
        "kind": symbol.kind,
        **detail,
        "range": _range(symbol.whole, above),
        "selectionRange": _range(symbol.own, above),
        "children": [_json(p, above) for p in symbol.parts],
    }


def _range(where: Where, above: int) -> Json:
    line, column, last, end = where
    return {"start": {"line": line + above, "character": column}, "end": {"line": last + above, "character": end}}


def _symbols(piece: Piece, encoding: str) -> list[Symbol]:
    """The symbols of a piece, made once: moving it does not change them."""
    if piece.symbols is None or piece.symbols[0] != encoding:
        text = Text(Source(piece.part.name, piece.part.text), encoding)
        found = [_symbol(text, i) for i in piece.items if not isinstance(i, t.UseDecl)]
        piece.symbols = encoding, found
    return piece.symbols[1]


def _symbol(text: Text, item: t.NamedItem) -> Symbol:
    parts = tuple(
        Symbol(name, kind.value, _detail(whole, own), _where(text, whole), _where(text, own))
        for name, kind, whole, own in _parts(item)
    )
    detail = type(item).__name__.removesuffix("Def").lower()
    whole, own = _where(text, item.span), _where(text, item.name.span)
    return Symbol(str(item.name), KINDS[type(item)].value, detail, whole, own, parts)


def _detail(whole: Span, own: Span) -> str:
    """What stands behind the name on its line."""
    text = whole.text[own.end - whole.start :].partition("\n")[0].strip(" :~=")
    return text[:60]


def _where(text: Text, span: Span) -> Where:
    start, end = text.position(span.start), text.position(span.end)
    return start.line, start.character, end.line, end.character


def _parts(item: t.NamedItem) -> Iterator[tuple[str, lsp.SymbolKind, Span, Span]]:
    match item:
        case t.ComputeDef():
            for p in (*item.inputs, *item.outputs, *item.attributes):
                yield str(p.name), _K.Variable, p.span, p.name.span
            for s in item.stages:
                for name in s.names if s.is_let else ():
                    yield str(name), _K.Variable, s.span, name.span
        case t.ModuleDef():
            for p in item.params:
                yield str(p.name), _K.Variable, p.span, p.name.span
            yield from _draws(item.body)
        case t.ScheduleDef():
            yield from _draws(item.body)
        case _:
            pass


def _draws(body: tuple[t.Stmt, ...]) -> Iterator[tuple[str, lsp.SymbolKind, Span, Span]]:
    for s in body:
        for node in walk(s):
            match node:
                case t.DrawStmt(name=name):
                    yield name.name, _K.Field, node.span, name.span
                case t.Maybe(name=name):
                    yield str(name), _K.Field, node.span, name.span
                case t.Either(name=name) if name is not None:
                    yield str(name), _K.Field, node.span, name.span
                case _:
                    pass


def workspace_symbols(documents: Documents, query: str) -> list[lsp.WorkspaceSymbol]:
    """The items of the editor's files whose names have the letters of the query, in that order."""
    found: list[lsp.WorkspaceSymbol] = []
    seen: set[str] = set()
    for path in (*(d.path for d in documents.open.values()), *documents.files()):
        if str(path.resolve()) in seen:
            continue
        seen.add(str(path.resolve()))
        tree = documents.tree(path)
        if tree is None:
            continue
        uri, text, items = tree
        for i in items:
            if not isinstance(i, t.UseDecl) and _matches(query.lower(), str(i.name).lower()):
                start = i.name.span.start
                at = lsp.Location(uri, text.range(start, start + len(i.name)))
                found.append(lsp.WorkspaceSymbol(at, str(i.name), KINDS[type(i)], container_name=path.name))
        if len(found) >= MOST:
            break
    return found[:MOST]


def _matches(query: str, name: str) -> bool:
    letters = iter(name)
    return all(c in letters for c in query)


# Folding: the bodies of items and blocks, lists over several lines, comments, and runs of `use`.


def folding(analysis: Analysis) -> list[lsp.FoldingRange]:
    """What can be folded, of a file that does not parse too. The line of the closing bracket stays."""
    found: list[lsp.FoldingRange] = []
    for piece in analysis.pieces:
        found += _of(piece)
    uses = [n for n, line in enumerate(analysis.source.text.split("\n")) if line.startswith("use ")]
    if uses and uses[-1] > uses[0]:
        found.append(lsp.FoldingRange(uses[0], uses[-1], kind=lsp.FoldingRangeKind.Imports))
    return found


def _of(piece: Piece) -> list[lsp.FoldingRange]:
    found: list[lsp.FoldingRange] = []
    open_: list[int] = []
    comments: list[int] = []

    def end_comments() -> None:
        if len(comments) > 1:
            found.append(lsp.FoldingRange(comments[0], comments[-1], kind=lsp.FoldingRangeKind.Comment))
        comments.clear()

    line = piece.part.above
    alone = True
    for kind in piece.words.kinds:
        if kind == "NEWLINE":
            line, alone = line + 1, True
            continue
        if kind == "COMMENT" and alone:
            if comments and comments[-1] != line - 1:
                end_comments()
            comments.append(line)
        else:
            end_comments()
        alone = False
        if kind in ("LBRACE", "LPAR", "LSQB"):
            open_.append(line)
        elif kind in ("RBRACE", "RPAR", "RSQB") and open_:
            start = open_.pop()
            if line - 1 > start:
                found.append(lsp.FoldingRange(start, line - 1))
    end_comments()
    return found


# Selection ranges: what stands around a position, from the word to the file.


def selection(analysis: Analysis, positions: list[lsp.Position]) -> list[lsp.SelectionRange]:
    """For each position the ranges around it, each inside of its parent."""
    return [_around(analysis, analysis.text.offset(p)) for p in positions]


def _around(analysis: Analysis, offset: int) -> lsp.SelectionRange:
    ranges = {(0, len(analysis.source.text))}
    for item in analysis.items_at(offset):
        for node in walk(item):
            start, end = analysis.start(node.span), analysis.end(node.span)
            if start <= offset <= end:
                ranges.add((start, end))
    found = analysis.name_at(offset)
    if found is not None:
        ranges.add((found.start, found.end))
    chain: lsp.SelectionRange | None = None
    inside = (0, len(analysis.source.text))
    for start, end in sorted(ranges, key=lambda r: (r[0] - r[1], r[0])):
        # Two neighbours that meet at the offset are not inside of each other.
        if inside[0] <= start and end <= inside[1]:
            chain, inside = lsp.SelectionRange(analysis.text.range(start, end), chain), (start, end)
    assert chain is not None
    return chain
