"""Messages of syntax errors: the word that was found, and the words that could stand there."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tensorc_dsl.base.diagnostic import IN_FILE, Diagnostic, Note, help_note
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.syntax import problems
from tensorc_dsl.syntax.engine import Unexpected
from tensorc_dsl.syntax.layout import LOOP_KINDS, SOFT_WORDS, Arranged, Mismatch
from tensorc_dsl.syntax.slips import CHARACTERS, ITEMS, Place, advice
from tensorc_dsl.syntax.words import Token

_SIGNS = {
    "LPAR": "(", "RPAR": ")", "LSQB": "[", "RSQB": "]", "LBRACE": "{", "RBRACE": "}", "COMMA": ",", "COLON": ":",
    "EQUAL": "=", "TILDE": "~", "PIN": ":=", "ADDS": "+=", "ARROW": "->", "AT": "@", "SEMICOLON": ";", "DOT": ".",
    "DOTS": "..", "REST": "...", "TIMED_AT": "at",
}  # fmt: skip
_OPERATORS = frozenset("PLUS MINUS STAR SLASH PERCENT COMPARE AND OR IF DOTS DOT".split())
_STARTS = frozenset(
    "NAME INT FLOAT STRING INF NAN TRUE FALSE WILDCARD MINUS NOT LPAR LSQB LBRACE REDUCE_OF REDUCE_BY SCAN_OF FOR".split()
)
"""The kinds of words with which an expression begins."""
_DESCRIBED = tuple(kind for kind in ITEMS if kind != "USE")

# Sets of kinds and their description for a message. The first set that is contained in the accepted kinds is used. No
# kind in these sets is a name at that position.
_GROUPS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"BUFFER", "FOR", "BLOCK"}), "a buffer, a loop or a block"),
    (frozenset({"FOR", "BLOCK"}), "a loop or a block"),
)


def _or(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def expected(accepts: set[str]) -> str:
    """A description of the accepted kinds for a message."""
    rest = set(accepts)
    if "RSQB" in rest:
        rest.discard("COLON")  # a slice is rarely meant
    out: list[str] = []
    if "NAME" not in rest:
        if rest >= set(ITEMS) - {"USE"}:
            return "an item (" + _or(f"`{w.lower()}`" for w in ITEMS if w in rest) + ")"
        for words, say in _GROUPS:
            if words <= rest:
                out.append(say)
                rest -= words | LOOP_KINDS
    elif "LET" in rest:
        out.append("a statement")
        rest -= SOFT_WORDS | _STARTS | {"LET", "EITHER", "MAYBE", "IF", "YIELD"}
    elif "WHERE" in rest:
        out.append("an iterator, a condition or a store")
        rest -= SOFT_WORDS | {"NAME", "WHERE"}
    elif rest >= {"NAME", "INT", "STRING"}:
        out.append("an expression")
        rest -= SOFT_WORDS | _STARTS
    else:
        out.append("a name")
        rest -= SOFT_WORDS | {"NAME"}
    if rest >= {"PLUS", "STAR"}:
        # After a complete value, a closing bracket or a separator is probably missing.
        operator = ["an operator"]
        rest -= _OPERATORS | {"LPAR", "LSQB"}
    else:
        operator = []
    names = {"STRING": "a string in double quotes", "INT": "a number", "FLOAT": "a number", "_NL": "a new line",
             "$END": "the end of the file", "DOC": "", "WILDCARD": "`_`"}  # fmt: skip
    signs = sorted({names.get(k, f"`{_SIGNS.get(k, k.lower())}`") for k in rest} - {""}, key=_rank)
    return _or([*out, *signs, *operator])


def _rank(word: str) -> tuple[bool, str]:
    return not word.startswith("`"), word


def _found(token: Token) -> str:
    match token.type:
        case "$END":
            return "the end of the file"
        case "_NL":
            return "`;`" if token == ";" else "the end of the line"
        case "DOC":
            return "a `///` comment"
        case _:
            return f"`{token}`"


def _span(source: Source, token: Token, end: int) -> Span:
    if token.type == "$END":
        # The last word is a better place for the error than the empty line that follows it.
        text = source.text[:end].rstrip()
        return Span(source, max(0, len(text) - 1), len(text)) if text else Span(source, 0, 0)
    start = token.start_pos
    if token.type in ("_NL", "DOC"):
        return Span(source, start, start + (1 if token.type == "_NL" else 3))
    return Span(source, start, token.end_pos)


def unexpected(source: Source, e: Unexpected, arranged: Arranged, end: int) -> Diagnostic:
    """The error for a word that cannot stand at its position."""
    at_end = e.n == len(arranged.words.kinds)
    token = Token("$END", "", end, end) if at_end else arranged.words.token(e.n)
    accepts = set(e.accepts)
    previous, open_ = arranged.before(e.n), arranged.open(e.n)
    span = _span(source, token, end)
    if previous is not None and previous.type == "DOC" and token.type not in _DESCRIBED:
        return problems.DESCRIBES_NOTHING(_span(source, previous, end))
    header = arranged.header(e.n)
    if token.type in LOOP_KINDS | {"FOR"} and "SPATIAL" in accepts and "COMPUTE" not in header:
        return _loop_in_block(source, span, end)
    notes: list[Note] = []
    if open_ and (token.type == "$END" or not _same_line(source, open_[-1], span)):
        closing = {"(": ")", "[": "]", "{": "}"}[str(open_[-1])]
        if token.type == "$END" or str(open_[-1]) != "{":
            notes.append(_opened(source, open_[-1], f"no `{closing}` closes"))
    if said := advice(Place(source, token, accepts, header, arranged.statement(e.n))):
        notes.append(help_note(said))
    if previous is not None and _CUT.match(source.text, previous.end_pos - 1):
        notes.append(_QUOTIENT)
    if all(n.kind != "help" for n in notes):
        notes.append(help_note(_write(expected(accepts), token, previous)))
    return problems.UNEXPECTED(span, tuple(notes), wanted=expected(accepts), found=_found(token))


def _opened(source: Source, bracket: Token, said: str) -> Note:
    """A note about a bracket that is open: what is said of it, and where it is."""
    at = Span(source, bracket.start_pos, bracket.start_pos + 1)
    return Note("note", f"{said} the `{bracket}` of ", at, IN_FILE)


def _write(wanted: str, token: Token, previous: Token | None) -> str:
    """The repair that follows from the words that can stand at a place: write one of them after the word before it."""
    behind = "" if previous is None or previous.type in ("_NL", "DOC") else f" after `{previous}`"
    if token.type == "$END" or previous is None:
        return f"write {wanted}{behind}"
    return f"write {wanted}{behind}, or leave out {_found(token)}"


_CUT = re.compile(r"[\w)\]][ \t]*//(?!/)")
"""A value and a comment behind it."""
_QUOTIENT = help_note("`//` begins a comment; a quotient is `/`, which floors on integers")
_LOOP = re.compile(r"(?:\w+\s+)?for\s+(\w+)\s+in\s+([^{},;]+?)\s*(?=[{,@])")


def _loop_in_block(source: Source, span: Span, end: int) -> Diagnostic:
    """The error for a loop in a block. The help shows the loop around the block."""
    loop = _LOOP.match(source.text, span.start, end)
    name, extent = (loop[1], loop[2]) if loop else ("i", "n")
    note = Note("note", "a block holds stores, and loops run it")
    return problems.LOOP_IN_BLOCK(span, (note,), name=name, extent=extent)


def _same_line(source: Source, token: Token, span: Span) -> bool:
    return source.line_column(token.start_pos)[0] == source.line_column(span.start)[0]


def bad_character(source: Source, offset: int) -> Diagnostic:
    """The error for a character that begins no word."""
    ch = source.text[offset]
    if ch == '"':
        line_end = source.text.find("\n", offset)
        span = Span(source, offset, line_end if line_end >= 0 else len(source.text))
        return problems.OPEN_STRING(span)
    shown = f"`{ch}`" if ch.isprintable() else f"the character U+{ord(ch):04X}"
    letters = "names are made of the letters a–z and A–Z, digits and `_`: write it with these"
    repair = CHARACTERS.get(ch, letters if ch.isalpha() else "leave it out")
    return problems.NO_MEANING(Span(source, offset, offset + 1), (help_note(repair),), character=shown)


def mismatch(source: Source, e: Mismatch) -> Diagnostic:
    """The error for a closing bracket that does not match."""
    start = e.closer.start_pos
    span = Span(source, start, start + 1)
    if e.opener is None:
        return problems.CLOSES_NOTHING(span, closer=e.closer)
    closing = {"(": ")", "[": "]", "{": "}"}[str(e.opener)]
    note = _opened(source, e.opener, "it would close")
    cut = _CUT.search(source.text, e.opener.start_pos, start)
    repair = _QUOTIENT if cut else help_note(f"write `{closing}` first")
    return problems.OTHER_BRACKET(span, (note, repair), wanted=closing, closer=e.closer)
