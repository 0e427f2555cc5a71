"""Syntax errors: the findings of the parser, each declared once, and their messages from the word that was found and those
that could stand there."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tensorc_dsl.base.diagnostic import IN_FILE, Diagnostic, Note, help_note, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.syntax.engine import Unexpected
from tensorc_dsl.syntax.layout import LOOP_KINDS, REDUCERS, SOFT_WORDS, Arranged, Mismatch, Token
from tensorc_dsl.syntax.names import nearest

# The findings of the parser, E0101–E0119: each declared once with its message and its repair.


@problem("E0101", "expected {wanted}; found {found}")
def UNEXPECTED(*, wanted: str, found: str) -> None: ...
@problem("E0102", "{character} has no meaning here")
def NO_MEANING(*, character: str) -> None: ...
@problem("E0103", "this `{closer}` closes nothing", help="leave it out, or write the bracket that it closes")
def CLOSES_NOTHING(*, closer: str) -> None: ...
@problem("E0103", "expected `{wanted}`; found `{closer}`")
def OTHER_BRACKET(*, wanted: str, closer: str) -> None: ...
@problem(
    "E0104",
    "this string does not end on its line",
    'no closing `"`',
    'write `\\n` for a line end inside a string, `\\"` for a quote',
)
def OPEN_STRING() -> None: ...
@problem("E0105", "`{escape}` is no character", help='write \\" \\\\ \\n \\t \\r or \\u{{HEX}}')
def NO_ESCAPE(*, escape: str) -> None: ...
@problem("E0106", "this number needs more than {most} bits", help="write a shorter one, or a float such as `1e30`")
def TOO_MANY_BITS(*, most: int) -> None: ...
@problem("E0106", "this number is larger than any f64", help="write `inf` for infinity")
def TOO_LARGE() -> None: ...
@problem(
    "E0107",
    "this is nested more than {most} levels deep",
    help="name parts of it with `let`, or write it as several statements",
)
def TOO_DEEP(*, most: int) -> None: ...
@problem(
    "E0107",
    "this chain of operators has more than {most} terms",
    help="name parts of it with `let`, as stages of the compute, or write a reduction: `sum[k] …`",
)
def TOO_LONG(*, most: int) -> None: ...
@problem(
    "E0108",
    "an argument without a name follows one with a name",
    help="name it too, or put it in front of the others",
)
def NAMELESS_ARGUMENT() -> None: ...
@problem(
    "E0109",
    "parentheses around several values are the parameters of an index map, or all values of a reducer",
    "no `->` follows, and a part of an expression is one value, as each step of a scan is",
    "write `[a, b]` for a list, `(i, j) -> (j, i)` for an index map, `(a if c else b, i if c else j)` to choose several",
)
def SEVERAL_VALUES() -> None: ...
@problem(
    "E0120",
    "the values of one reduction are stored at one place each: {reason}",
    help="write the same subscripts behind each name, and `_` for a value that is not needed: `(v[i], _) = …`",
)
def UNEVEN_RESULTS(*, reason: str) -> None: ...
@problem(
    "E0110",
    "the expression after `~` is not a distribution",
    help="write `let x ~ sample_categorical([…])`, or `let x = …` for a value",
)
def NO_DISTRIBUTION() -> None: ...
@problem(
    "E0111",
    "a rule of a space is a module's name, or a call of it",
    help="name a module; what the rule does is written there",
)
def NO_RULE() -> None: ...
@problem("E0112", "this comment describes no item", help="`///` stands above an item; write `//` for other comments")
def DESCRIBES_NOTHING() -> None: ...
@problem("E0113", "a parameter of an index map is a name", help="write `(i, j) -> (…)`")
def NO_PARAMETER() -> None: ...
@problem("E0114", "a block has one `init`", "the second one", help="leave one of the two out")
def TWO_INITS() -> None: ...
@problem(
    "E0115",
    "a loop cannot stand in a block",
    help="put the loop around the block, and bind an iterator to it: "
    "`for {name} in {extent} {{ block … {{ spatial v{name} in {extent} = {name}; … }} }}`",
)
def LOOP_IN_BLOCK(*, name: str, extent: str) -> None: ...
@problem("E0116", "there is nothing in these brackets", help="a single value is its name alone: `{name}`")
def NO_SUBSCRIPTS(*, name: str) -> None: ...
@problem(
    "E0117",
    "a slice has a start and an end, and no step",
    help="`reversed(…)` turns a list around; `for` over a `range` picks its elements",
)
def STEPPED() -> None: ...
@problem(
    "E0118",
    "`...` stands twice on one side of an index map",
    help="it stands once on the left, and once on the right for the same indices: `(..., k, j) -> (..., j, k)`",
)
def REST_TWICE() -> None: ...
@problem(
    "E0118",
    "`...` is missing on this side of the index map",
    help="it stands once on the left, and once on the right for the same indices: `(..., k, j) -> (..., j, k)`",
)
def REST_MISSING() -> None: ...
@problem(
    "E0119",
    "`{name}` is the name of another branch too",
    "the second one",
    "a decision is the name of a branch: give each a name of its own",
)
def SAME_BRANCH(*, name: str) -> None: ...


# Repairs of common slips: words and signs of other languages, misspelt keywords, and what this language writes instead.


ITEMS = (
    "COMPUTE",
    "REDUCER",
    "INTRINSIC",
    "TARGET",
    "CONST",
    "MODULE",
    "SPACE",
    "SCHEDULE",
    "PRIOR",
    "TASK",
    "PROGRAM",
    "USE",
)
"""The kinds of words with which an item of a file begins."""

_STATEMENTS = frozenset("LET IF ELSE FOR YIELD EITHER MAYBE TRY SELECT WHERE SPATIAL REDUCE BLOCK BUFFER INIT".split())
"""The kinds of words with which a statement begins."""

_RESERVED = frozenset("LET IF ELSE FOR YIELD EITHER MAYBE OR AND NOT TRUE FALSE IN INF NAN WHERE".split())

_ITEM = "an item begins with its kind: `compute f(A: f32[N]) -> B: f32[N] { … }`, `task small = f(N=64)`"
_COMPUTES = "a `compute` says what is computed, a `schedule` or a `module` how"
_USES = "names of another file are brought by `use`: `use std.cpu.{name}`"

_ITEMS_ELSEWHERE = {
    **dict.fromkeys(("def", "fn", "func", "function", "kernel", "Func", "class", "lambda", "void"), _COMPUTES),
    **dict.fromkeys(("import", "from", "include", "require"), _USES),
    **dict.fromkeys(
        ("Var", "RDom", "var", "int", "float", "Tensor"), "a compute declares its indices and sizes by their use"
    ),
}
"""What stands for the words with which other languages begin a declaration."""

_OUTSIDE = {
    "assume": "what inputs contain stands before the `{`: `-> B: f32[N] assume A sorted { … }`",
    "const": "a `const` stands outside of computes; in one, a name begins with `let`",
}
"""What stands for the words of a compute's header, or of a file, in its body."""

_STATEMENTS_ELSEWHERE = frozenset("while return import def break continue pass print assert var const mut".split())
"""Words with which statements of other languages begin."""

_BITS = "in a compute, `{}` is of bits"
CHARACTERS = {
    "'": "strings stand in double quotes",
    "#": "comments begin with `//`",
    "&": "write `and`; " + _BITS.format("bit_and(x, y)"),
    "|": "write `or`; " + _BITS.format("bit_or(x, y)"),
    "!": "write `not`",
    "^": "a power is `pow(x, y)`; " + _BITS.format("xor(x, y)"),
    "?": "a choice is `a if condition else b`",
    "`": "names stand without quotes",
    "\\": "an expression goes on in the next line within brackets or after an operator; nothing marks that",
    "“": 'strings stand in straight quotes: `"…"`',
    "”": 'strings stand in straight quotes: `"…"`',
    "·": "write `*`",
    "×": "write `*`",
    "÷": "write `/`",
    "−": "write `-`",
    "–": "write `-`",
    "∑": "write `sum[k] …`",
    "Σ": "write `sum[k] …`",
    "≤": "write `<=`",
    "≥": "write `>=`",
    "≠": "write `!=`",
    "→": "write `->`",
    "∞": "write `inf`",
    "\0": "the file is binary, or text in UTF-16: save it as UTF-8",
    "\u00a0": "this is a no-break space; write an ordinary one",
}
"""What is written in place of a character that begins no word."""


@frozen
class Place:
    """A word that cannot stand where it does, and what stands around it."""

    source: Source
    token: Token
    accepts: set[str]
    """The kinds of words that could stand there."""
    header: frozenset[str]
    """The kinds of the words before the innermost open brace: what it is a body of."""
    statement: list[Token]
    """The words before it in its statement or item."""


def advice(at: Place) -> str:
    """The right spelling of the probable intent; empty if none is known."""
    if "COMPUTE" in at.accepts and "NAME" not in at.accepts:
        return _instead_of_item(at)
    return _by_kind(at) or _misspelt(at)


def _instead_of_item(at: Place) -> str:
    """The repair for a word that stands where an item begins, or behind a complete one."""
    word = str(at.token)
    if at.token.type == "DOT" and [t.type for t in at.statement[-2:]][:1] == ["WITH"]:
        if path := _PATH.match(at.source.text, at.statement[-1].start_pos):
            folder, _, name = path[0].rpartition(".")
            return f"bring it by `use {folder}.{{{name}}}`, and write `with {name}`"
    if word in _ITEMS_ELSEWHERE:
        return _ITEMS_ELSEWHERE[word]
    if at.source.text[at.token.start_pos :][:2] in ("--", "/*"):
        return CHARACTERS["#"]
    if at.token.type in ("SEMICOLON", "_NL"):
        return "an item ends with its line: leave out the `;`"
    if at.token.type == "NAME":
        near, _ = nearest(word, (kind.lower() for kind in ITEMS))
        if near:
            return f"did you mean `{near}`?"
    return _ITEM


_PATH = re.compile(r"\w+(?:\.\w+)+")


def _misspelt(at: Place) -> str:
    """The repair for a statement whose first word is none, if the word that cannot stand there follows it."""
    if len(at.statement) != 1:
        return ""
    word = str(at.statement[0])
    if said := _OUTSIDE.get(word if "COMPUTE" in at.header else ""):
        return said
    if at.statement[0].type != "NAME":
        return ""
    if word in _STATEMENTS_ELSEWHERE:
        return _no_such_statement(word, at)
    near, _ = nearest(word, (kind.lower() for kind in _STATEMENTS))
    return f"did you mean `{near}`?" if near else ""


def _no_such_statement(word: str, at: Place) -> str:
    if word == "return" and "COMPUTE" in at.header:
        return "a compute assigns to its outputs: `C[i, j] = …`"
    return f"there is no `{word}` in this language"


def _by_kind(at: Place) -> str:
    """The repair that the word and its neighbours tell."""
    text, token, accepts = at.source.text, at.token, at.accepts
    start = token.start_pos
    before = text[:start].rstrip()[-1:]
    match token.type:
        case "SLASH" | "STAR" if text[start - 1 : start + 1] == "/*" or text[start : start + 2] == "/*":
            return CHARACTERS["#"]
        case "TILDE" if "INT" in accepts:
            return _BITS.format("bit_not(x)")
        case "TILDE":
            return "a draw begins with `let`: `let x ~ sample_categorical([…])`"
        case "ADDS" if "_NL" not in accepts:
            return "write it out, `C[i] = C[i] + …`, or in a compute as a reduction, `C[i] = sum[k] …`"
        case "PLUS" | "MINUS" | "STAR" | "SLASH" if text[start + 1 : start + 2] == "=":
            return f"write it out: `C[i] = C[i] {token} …`"
        case "REDUCE_OF" if accepts == {"NAME", *SOFT_WORDS}:
            return f"`{token}` is built in: `{token}[k] …`"
        case "COMPARE" if before in "<>":
            shift = "shift_left" if before == "<" else "shift_right"
            return f"write `{shift}(x, n)`, or `x {'*' if before == '<' else '/'} 4`; a quotient of integers is floored"
        case "WHERE" if text[token.end_pos : token.end_pos + 1] == "(":
            return "a choice is `a if condition else b`, or `select(condition, a, b)`"
        case "WHERE" if "COMPUTE" in at.header:
            return (
                "an element has a value everywhere: `… if condition else 0`; what sizes keep to stands before the `{`"
            )
        case "DOTS" if "COMPUTE" in at.header:
            return "an index counts from 0: `i in N`; that from 1 is `i in N - 1`, and what it reads is at `i + 1`"
        case _ if "ELSE" in accepts and token.type in ("RBRACE", "_NL", "RPAR", "COMMA"):
            return "a choice has two values: `a if condition else b`"
        case "FOR" if "COMPUTE" in at.header:
            return "no loops in a compute: `B[i] = …` holds for every `i`, `B[i in 8] = …` for eight, `sum[k] …` adds up all"
        case "NAME" if (word := _REDUCER.search(text, 0, start)) and "PLUS" in accepts:
            return f"say over which indices: `{word[1]}[k] …`"
        case "NAME" if "PLUS" in accepts and (said := _beside(at)):
            return said
        case "EQUAL" if "_NL" in accepts:
            return "a name for a value begins with `let`: `let x = …`"
        case "AT" if "COMPUTE" in at.header and "_NL" in accepts:
            return "a product of matrices is `C[i, j] = sum[k] A[i, k] * B[k, j]`"
        case "STAR" if _begins(at, "USE"):
            return "name what is used, `use std.cpu.{a, b}`, or use the whole file, `use std.cpu`"
        case "STRING" if _begins(at, "USE"):
            return "a path has dots and no quotes: `use std.cpu`"
        case "COMMA" | "LPAR" if _names_several(at):
            return "several names stand in brackets: `let [a, b] = …`"
        case "LPAR" if "LSQB" in accepts and "EQUAL" in accepts and "COMPUTE" in at.header:
            return f"subscripts stand in brackets: `{at.statement[-1]}[i] = …`"
        case "LPAR" if "LSQB" in accepts and _begins(at, "COMPUTE"):
            return f"dimensions stand in brackets: `{at.statement[-1]}[N]`"
        case "COMPARE" if str(token) == "==" and "EQUAL" in accepts:
            return "`=` says what an element is; `==` compares"
        case "INT" if before == "," and accepts <= {"NAME", "RSQB", *SOFT_WORDS} and "COMPUTE" in at.header:
            return "an index is a name, and the line holds for all its values: `C[i, j] = A[i] if j == 0 else B[i]`"
        case "INT" if before == "[" and accepts <= {"NAME", "RSQB", *SOFT_WORDS} and "COMPUTE" in at.header:
            return "an index is a name, and the line holds for all its values; a single value is `-> C: f32`, `C = …`"
        case "PLUS" | "MINUS" if _is_place(at):
            shifted = f"X[{at.statement[-1]} {'-' if token == '+' else '+'} 1]"
            return f"an index is a name, and the line holds for all its values; shift what is read: `{shifted}`"
        case "STAR" | "SLASH" if _is_place(at):
            i = at.statement[-1]
            return f"an index is a name, and the line holds for all its values: `X[{i} / 2] if {i} % 2 == 0 else 0.0`"
        case "LSQB" | "LPAR" if _is_place(at):
            return "data choose terms, not places: a histogram is `H[v] = sum[n] (1.0 if X[n] == i32(v) else 0.0)`"
        case "LSQB" | "NAME" if accepts == {"COLON"}:
            return "a tensor has a name and a type: `C: f32[M]`"
        case "LSQB" if accepts == {"LPAR"}:
            return "dimensions are named by the shapes that have them: `f(A: f32[N]) -> B: f32[N]`"
        case "COLON" if (_begins(at, "LET") and "COMPUTE" in at.header) or _begins(at, "CONST"):
            return f"a name has the type of its value: `{' '.join(at.statement)} = …`"
        case "EQUAL" | "COLON" | "LPAR" if _begins(at, "TASK") and accepts == {"EQUAL"}:
            return "a task has a name and a compute: `task small = f(N=64)`"
        case "COLON" if before in ("[", ","):
            return "a tensor is read element by element: `A[i, k]`"
        case "COLON" | "EQUAL" if "LBRACE" in accepts:
            return "a body stands in braces: `{ … }`"
        case "LBRACE" if at.statement[-1:] and at.statement[-1].type == "MAYBE":
            return "a choice has a name, that of its draw: `maybe packed { … }`"
        case "LSQB" if before == "]":
            return "all dimensions stand in one pair of brackets: `[M, K]`"
        case "LBRACE" | "COLON" | "NAME" if accepts == {"ARROW"}:
            return "a compute names what it makes: `-> C: f32[M, N] { … }`"
        case "IF" if "NAME" in accepts and "INT" in accepts:
            return "a value is chosen by `a if condition else b`"
        case reserved if reserved in _RESERVED and "NAME" in accepts and "INT" not in accepts:
            return f"`{token}` is a word of the language and cannot be a name"
        case "STAR" if before == "*":
            return "a power is `pow(x, y)`"
        case "DOT" if "FLOAT" in accepts:
            return "a number has digits on both sides of its point: `0.5`"
        case _ if [t.type for t in at.statement[-2:]] == ["INT", "DOT"]:
            return f"a number has digits on both sides of its point: `{at.statement[-2]}.0`"
        case "EQUAL" if before == "=" or "COMPARE" in accepts:
            return "`==` compares"
        case "INT" | "FLOAT" | "MINUS" if at.statement[:1] and at.statement[0].type == "TASK" and before in ("(", ","):
            return f"a task binds sizes by name: `N={token}`"
        case "NAME" | "ELSE" if "OTHERWISE" in accepts and "NAME" not in accepts:
            return "what is done if a step of a `try` is refused stands in `otherwise { … }`"
        case "NAME" if str(token) == "elif":
            return "write `else if`"
        case "NAME" if str(token) in _STATEMENTS_ELSEWHERE and "LET" in accepts:
            return _no_such_statement(str(token), at)
        case _:
            return ""


def _names_several(at: Place) -> bool:
    """Whether the word comes in the place of brackets around names for the elements of a list."""
    before = [t.type for t in at.statement]
    if at.token.type == "LPAR":
        return before == ["LET"]
    return before[:-1] == ["LET"] or (before == ["NAME"] and "_NL" in at.accepts)


def _is_place(at: Place) -> bool:
    """Whether the word follows an index on the left side of a stage."""
    return "COMPUTE" in at.header and at.accepts >= {"COMMA", "IN", "RSQB"} and "PLUS" not in at.accepts


def _beside(at: Place) -> str:
    """The repair for a name that stands directly behind a value; empty if none is known."""
    if "COMPUTE" not in at.header:
        return ""
    before, word = at.statement[-1], str(at.token)
    kinds = [t.type for t in at.statement]
    if before.type in ("INT", "FLOAT"):
        if word[0] in "xX" and str(before) == "0":
            return "numbers are decimal"
        if word.lower() in ("f", "h", "d", "l", "u", "ul", "lf") and before.end_pos == at.token.start_pos:
            return "a number has no suffix: it is of the type of its neighbour, or of a conversion, `f32(1)`"
        return f"a product is `{before} * {word}`"
    if word == "as" or kinds[-3:] == ["LPAR", "NAME", "RPAR"]:
        return "a conversion is a call: `f32(x)`"
    if before.type == "NAME":
        return f"a function is a call, `{before}(…)`; a product has its `*`; a sum is `sum[k] …`"
    if before.type == "RSQB":
        return "a reducer of your own is used as `reduce name[k] …`, a scan as `scan[t] init … step …`"
    return ""


def _begins(at: Place, kind: str) -> bool:
    return bool(at.statement) and at.statement[0].type == kind


_REDUCER = re.compile(rf"\b({'|'.join(REDUCERS)})\s+$")


_SIGNS = {
    "LPAR": "(", "RPAR": ")", "LSQB": "[", "RSQB": "]", "LBRACE": "{", "RBRACE": "}", "COMMA": ",", "COLON": ":",
    "EQUAL": "=", "TILDE": "~", "PIN": ":=", "ADDS": "+=", "ARROW": "->", "CASE_ARROW": "=>", "AT": "@", "SEMICOLON": ";",
    "DOT": ".", "DOTS": "..", "REST": "...", "TIMED_AT": "at",
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
    if rest & {"PLUS", "COMPARE"}:
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
        return DESCRIBES_NOTHING(_span(source, previous, end))
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
        follows = arranged.words.kinds[e.n + 1 : e.n + 2]
        omissible = any(k in accepts or (k in ("NEWLINE", "SEMICOLON") and "_NL" in accepts) for k in follows)
        notes.append(help_note(_write(expected(accepts), token, previous, omissible)))
    return UNEXPECTED(span, tuple(notes), wanted=expected(accepts), found=_found(token))


def _opened(source: Source, bracket: Token, said: str) -> Note:
    """A note about a bracket that is open: what is said of it, and where it is."""
    at = Span(source, bracket.start_pos, bracket.start_pos + 1)
    return Note("note", f"{said} the `{bracket}` of ", at, IN_FILE)


def _write(wanted: str, token: Token, previous: Token | None, omissible: bool) -> str:
    """The repair that follows from the words that can stand at a place: write one of them after the word before it, or leave
    the word out, if the next one could stand in its place.
    """
    behind = "" if previous is None or previous.type in ("_NL", "DOC") else f" after `{previous}`"
    if not omissible or previous is None:
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
    return LOOP_IN_BLOCK(span, (note,), name=name, extent=extent)


def _same_line(source: Source, token: Token, span: Span) -> bool:
    return source.line_column(token.start_pos)[0] == source.line_column(span.start)[0]


def bad_character(source: Source, offset: int) -> Diagnostic:
    """The error for a character that begins no word."""
    ch = source.text[offset]
    if ch == '"':
        line_end = source.text.find("\n", offset)
        span = Span(source, offset, line_end if line_end >= 0 else len(source.text))
        return OPEN_STRING(span)
    shown = f"`{ch}`" if ch.isprintable() else f"the character U+{ord(ch):04X}"
    letters = "names are made of the letters a–z and A–Z, digits and `_`: write it with these"
    repair = CHARACTERS.get(ch, letters if ch.isalpha() else "leave it out")
    return NO_MEANING(Span(source, offset, offset + 1), (help_note(repair),), character=shown)


def mismatch(source: Source, e: Mismatch) -> Diagnostic:
    """The error for a closing bracket that does not match."""
    start = e.closer.start_pos
    span = Span(source, start, start + 1)
    if e.opener is None:
        return CLOSES_NOTHING(span, closer=e.closer)
    closing = {"(": ")", "[": "]", "{": "}"}[str(e.opener)]
    note = _opened(source, e.opener, "it would close")
    cut = _CUT.search(source.text, e.opener.start_pos, start)
    repair = _QUOTIENT if cut else help_note(f"write `{closing}` first")
    return OTHER_BRACKET(span, (note, repair), wanted=closing, closer=e.closer)
