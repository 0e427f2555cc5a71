"""Semantic tokens: the class of every word, those of names by what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from lsprotocol import types as lsp

from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.check.positions import Definition, Entry, Files, Written
from tensorc_dsl.faces.lsp.analysis import Analysis, Text, items_of
from tensorc_dsl.faces.lsp.documents import Document, Documents
from tensorc_dsl.faces.lsp.parts import Packed, Piece
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.traversal import walk

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
