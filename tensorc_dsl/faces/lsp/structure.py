"""What a document is made of: symbols, of all files by name, folding, selection ranges, the class of every word, and the one
layout.

A text is formatted item by item, and the layout of an item is kept: after an edit only the items that changed are formatted.
Classes of words are those of the grammar, and of names what they mean (semantic tokens).
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cached_property, lru_cache

from lsprotocol import types as lsp

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.check.positions import Definition, Entry, Files, Written
from tensorc_dsl.faces.lsp.analysis import Analysis, Text, items_of
from tensorc_dsl.faces.lsp.documents import Document, Documents
from tensorc_dsl.faces.lsp.parts import Packed, Piece, Symbol, Where
from tensorc_dsl.faces.lsp.protocol import Json, Ready
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.fmt import apart, format_parsed, format_text
from tensorc_dsl.syntax.parse import item_starts, read
from tensorc_dsl.syntax.traversal import walk

KEPT = 8192
"""The number of parts of texts of which the layout is kept."""


@frozen
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
    return (kinds[0], kinds[-1], format_parsed(found)) if kinds else None


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


_T, _M = lsp.SemanticTokenTypes, lsp.SemanticTokenModifiers

TYPES = (
    _T.Namespace, _T.Class, _T.Struct, _T.Type, _T.Function, _T.Method, _T.Macro, _T.Property, _T.Parameter, _T.Variable,
    _T.Keyword, _T.Comment, _T.String, _T.Number, _T.Operator, _T.Event,
)  # fmt: skip
MODIFIERS = (_M.Declaration, _M.Readonly, _M.DefaultLibrary, _M.Documentation)

WIDTH = 5
"""The numbers of a word."""

LEGEND = lsp.SemanticTokensLegend([str(x.value) for x in TYPES], [str(x.value) for x in MODIFIERS])

_ITEMS: dict[type, lsp.SemanticTokenTypes] = {
    t.ComputeDef: _T.Function, t.ReducerDef: _T.Function, t.ModuleDef: _T.Function, t.IntrinsicDef: _T.Macro,
    t.SpaceDef: _T.Class, t.ScheduleDef: _T.Class, t.PriorDef: _T.Class, t.TargetDef: _T.Struct, t.ConstDef: _T.Variable,
    t.TaskDef: _T.Event, t.ModelDef: _T.Class, t.ProgramDef: _T.Function,
}  # fmt: skip

_ENTRIES: dict[str, lsp.SemanticTokenTypes] = {
    "primitive": _T.Function, "draw": _T.Function, "function": _T.Function, "reducer": _T.Function, "query": _T.Property,
    "method": _T.Method, "parameter": _T.Parameter, "given": _T.Variable, "type": _T.Type, "target": _T.Struct,
    "fact": _T.Property, "law": _T.Property,
}  # fmt: skip

_LEXICAL: dict[str, lsp.SemanticTokenTypes] = {
    "COMMENT": _T.Comment, "STRING": _T.String, "INT": _T.Number, "FLOAT": _T.Number, "INF": _T.Number, "NAN": _T.Number,
}  # fmt: skip

_SIGNS = frozenset("LPAR RPAR LSQB RSQB LBRACE RBRACE COMMA COLON SEMICOLON DOT NEWLINE BAD NAME WILDCARD".split())

Class = tuple[lsp.SemanticTokenTypes, tuple[lsp.SemanticTokenModifiers, ...]]
Token = tuple[int, int, lsp.SemanticTokenTypes, int]
"""A word: its start, its end, its class, and the bits of its modifiers."""


def all_tokens(documents: Documents, document: Document) -> lsp.SemanticTokens:
    """The words of a document. The last reply is kept, so that the next one has only the differences."""
    document.tokens = told = str(next(documents.answers)), semantic_tokens(documents.analysis(document))
    return lsp.SemanticTokens(told[1], told[0])


def changed_tokens(
    documents: Documents, document: Document, before: str
) -> lsp.SemanticTokens | lsp.SemanticTokensDelta:
    """What differs from the answer of that name; all words if it was not the last one."""
    known = document.tokens
    now = all_tokens(documents, document)
    if known is None or known[0] != before:
        return now
    old, new = known[1], [*now.data]
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    edit = lsp.SemanticTokensEdit(start, len(old) - start - end, new[start : len(new) - end])
    return lsp.SemanticTokensDelta([edit] if edit.delete_count or edit.data else [], now.result_id)


def _alike(one: list[int], other: list[int]) -> int:
    """How many numbers at the start are the same, of whole words: compared by halves, since lists compare fast."""
    low, high = 0, min(len(one), len(other)) // WIDTH
    while low < high:
        middle = (low + high + 1) // 2
        if one[low * WIDTH : middle * WIDTH] == other[low * WIDTH : middle * WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low * WIDTH


def semantic_tokens(analysis: Analysis, within: lsp.Range | None = None) -> list[int]:
    """The words of the document, or of a range of it, as the protocol packs them: each relative to the one before."""
    low, high = (0, len(analysis.source.text)) if within is None else analysis.text.offsets(within)
    data: list[int] = []
    line = column = 0
    classes = _Classes(analysis)
    for piece in analysis.pieces:
        if piece.end <= low or piece.start > high:
            continue
        packed = _packed(analysis, piece, classes)
        if packed.data:
            first = len(data)
            data += packed.data
            at = packed.data[0] + piece.part.above
            data[first] = at - line
            data[first + 1] -= column if at == line else 0
            line, column = packed.line + piece.part.above, packed.column
    return data


def _packed(analysis: Analysis, piece: Piece, classes: _Classes) -> Packed:
    """The tokens of a piece, made again only if it means something else."""
    means = (analysis.text.encoding, *(analysis.memory.entry(i) for i in piece.items))
    if piece.packed is not None and all(a is b for a, b in zip(piece.packed.means, means, strict=True)):
        return piece.packed
    data: list[int] = []
    line = column = 0
    # Positions in the part alone.
    text = Text(Source(piece.part.name, piece.part.text), analysis.text.encoding)
    for start, end, kind, bits in classes.tokens(piece):
        at = text.position(start)
        # No word has a line end.
        length = text.position(end).character - at.character
        right = at.character - (column if at.line == line else 0)
        data += (at.line - line, right, length, TYPES.index(kind), bits)
        line, column = at.line, at.character
    piece.packed = Packed(means, data, line, column)
    return piece.packed


class _Classes:
    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis

    @cached_property
    def _known(self) -> dict[Span, Class]:
        """The classes of the names of items."""
        known: dict[Span, Class] = {}
        for item in items_of(self.analysis):
            readonly = (_M.Readonly,) if isinstance(item, t.ConstDef) else ()
            library = (_M.DefaultLibrary,) if item.span.source.name.startswith("std/") else ()
            known.setdefault(item.name.span, (_ITEMS[type(item)], (*readonly, *library)))
        return known

    def tokens(self, piece: Piece) -> Iterator[Token]:
        """The words of a piece that have a class, by their places in it."""
        names: dict[tuple[int, int], Class] = {}
        for item in piece.items:
            params = _parameters(item)
            for r in self.analysis.names_in(item):
                names[r.span.start, r.span.end] = self._class(r.definition, r.span, params)
        words = piece.words
        for kind, word, start, end in zip(words.kinds, words.texts, words.starts, words.ends, strict=True):
            place = (start, end)
            if place in names:
                found, modifiers = names[place]
                yield (*place, found, sum(1 << MODIFIERS.index(m) for m in modifiers))
            elif kind in _LEXICAL:
                bits = 1 << MODIFIERS.index(_M.Documentation) if word.startswith("///") else 0
                yield (*place, _LEXICAL[kind], bits)
            elif kind not in _SIGNS:
                yield (*place, _T.Keyword if word[0].isalpha() else _T.Operator, 0)

    def _class(self, definition: Definition, at: Span, params: frozenset[tuple[int, int]]) -> Class:
        match definition:
            case Entry(kind=kind):
                return _ENTRIES[kind], (_M.DefaultLibrary,)
            case Files():
                return _T.Namespace, ()
            case Written(spans=spans):
                first = spans[0]
                declares = (_M.Declaration,) if first.source is at.source and first.start == at.start else ()
                known = self._known.get(first)
                if known is not None:
                    return known[0], (*declares, *known[1])
                own = (first.start, first.end) in params and first.source is at.source
                return (_T.Parameter if own else _T.Variable), declares


def _parameters(item: t.Item) -> frozenset[tuple[int, int]]:
    """Where the item's parameters are."""
    found = (n.name.span for n in walk(item) if isinstance(n, t.Param | t.TensorParam))
    return frozenset((s.start, s.end) for s in found)
