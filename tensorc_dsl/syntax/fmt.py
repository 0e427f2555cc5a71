"""Formats a text in its one layout and keeps every word and comment: `parse(fmt(x)) == parse(x)`, `fmt(fmt(x)) == fmt(x)`.

Words stay as they are written, parentheses too. Text beyond 120 columns is broken: lists and arguments have one entry per
line, expressions are broken before their operators. The writer decides three things: statements joined with `;` stay on one
line while they fit, and so do braces that open and close on one line; one empty line between two statements stays.

There are no options, and no exceptions within sums (`2*pad`). Trailing comments are not aligned: a change of one line would
be a change of its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax.layout import Node, Token, Tree
from tensorc_dsl.syntax.parse import Text, read

# Documents: text with the positions at which it may be broken, and their renderer (Wadler, "A prettier printer", 2003).
#
# A `Group` is printed on one line if that fits; otherwise all of its own `Line`s become line ends. A line comment ends its
# line, so a group that contains one is broken.


@frozen
class DocText:
    text: str


@frozen
class Line:
    """Prints `flat` if its group is on one line, else a line end; None is always a line end. `blank` adds an empty line."""

    flat: str | None
    blank: bool = False


@frozen
class Comment:
    """A line comment, on a line of its own (`own`) or at the end of the current line."""

    text: str
    own: bool


@frozen
class IfBroken:
    """DocText that is printed only if its group is broken, such as a trailing comma."""

    text: str


@frozen
class Join:
    parts: tuple[Doc, ...]
    breaks: bool


@frozen
class Indent:
    doc: Doc
    columns: int
    breaks: bool


@frozen
class Group:
    doc: Doc
    breaks: bool


Doc = DocText | Line | Comment | IfBroken | Join | Indent | Group

SPACE = DocText(" ")
HARD = Line(None)


def _breaks(doc: Doc) -> bool:
    match doc:
        case DocText() | IfBroken():
            return False
        case Line(flat=flat):
            return flat is None
        case Comment():
            return True
        case Join(breaks=breaks) | Indent(breaks=breaks) | Group(breaks=breaks):
            return breaks
        case _:
            assert_never(doc)


def join(*parts: Doc) -> Doc:
    return Join(parts, any(map(_breaks, parts)))


def indent(*parts: Doc, columns: int = 4) -> Doc:
    doc = join(*parts)
    return Indent(doc, columns, _breaks(doc))


def group(*parts: Doc) -> Doc:
    doc = join(*parts)
    return Group(doc, _breaks(doc))


_Frame = tuple[int, bool, Doc]  # indentation, whether on one line, the document


@dataclass(slots=True)
class _Page:
    out: list[str] = field(default_factory=list[str])
    column: int = 0
    gap: str = ""
    """A space that is written before the next text of the line."""
    suffix: str = ""
    """A comment that waits for the end of this line."""
    full: bool = False
    """Whether a comment has ended this line, so that the next text begins another one."""

    def newline(self, blank: bool = False) -> None:
        self.out.append(f"{self.suffix}\n\n" if blank else f"{self.suffix}\n")
        self.column, self.gap, self.suffix, self.full = 0, "", "", False

    def text(self, text: str, pad: int) -> None:
        if text == " ":
            self.gap = text
            return
        if self.full and not (self.suffix and text in (",", ";")):
            self.newline()
        gap = self.gap if self.column else " " * pad
        self.out.append(gap + text)
        self.column += len(gap) + len(text)
        self.gap = ""

    def comment(self, c: Comment, pad: int) -> None:
        if c.own and self.column > 0:
            self.newline()
        if self.full:
            self.newline()
        if self.column == 0:
            self.text(c.text, pad)
        else:
            self.suffix = f"  {c.text}"
        self.full = True


def render(doc: Doc, width: int) -> str:
    """The text of `doc`, within `width` columns if its lines allow it; no line ends in blanks."""
    page = _Page()
    stack: list[_Frame] = [(0, False, doc)]
    while stack:
        pad, flat, top = stack.pop()
        match top:
            case DocText(text=text):
                page.text(text, pad)
            case IfBroken(text=text):
                if not flat:
                    page.text(text, pad)
            case Comment():
                page.comment(top, pad)
            case Line(flat=instead, blank=blank):
                if flat and instead is not None:
                    if instead:
                        page.text(instead, pad)
                else:
                    page.newline(blank)
            case Join(parts=parts):
                stack.extend((pad, flat, p) for p in reversed(parts))
            case Indent(doc=inner, columns=columns):
                stack.append((pad + columns, flat, inner))
            case Group(doc=inner, breaks=breaks):
                one_line = flat or (not breaks and _fits(inner, stack, width - (page.column or pad)))
                stack.append((pad, one_line, inner))
            case _:
                assert_never(top)
    return "".join(page.out)


def _fits(doc: Doc, rest: list[_Frame], room: int) -> bool:
    """Whether `doc` on one line, with the text behind it up to the next line end, takes at most `room` columns."""
    stack: list[tuple[bool, Doc]] = [(True, doc)]
    after = len(rest)
    while room >= 0:
        if not stack:
            if after == 0:
                return True
            after -= 1
            stack.append((rest[after][1], rest[after][2]))
        flat, top = stack.pop()
        match top:
            case DocText(text=text):
                room -= len(text)
            case Line(flat=instead):
                if not flat or instead is None:
                    return True
                room -= len(instead)
            case Comment():
                return True
            case IfBroken(text=text):
                room -= 0 if flat else len(text)
            case Join(parts=parts):
                stack.extend((flat, p) for p in reversed(parts))
            case Indent(doc=inner):
                stack.append((flat, inner))
            case Group(doc=inner, breaks=breaks):
                stack.append((flat and not breaks, inner))
            case _:
                assert_never(top)
    return False


# Assigns each comment of a text to a word.
#
# A comment belongs to the word before it if it stands on that word's line, else to the word after it.


@frozen
class Remark:
    """A comment without trailing blanks. `blank` is true if an empty line stands above it."""

    text: str
    blank: bool


def leaves(node: Node) -> Iterator[Token]:
    """The words below a node, in text order, without the ends of statements and the descriptions of items."""
    stack: list[Node | None] = [node]
    while stack:
        match stack.pop():
            case None:
                pass
            case Token() as token:
                if token.type not in ("_NL", "DOC"):
                    yield token
            case Tree() as tree:
                stack.extend(reversed(tree.children))


_NO_PART = frozenset(("_NL", "DOC"))
"""Kinds of words that begin no node: the end of a statement, and the description of an item."""


def first(node: Node) -> Token:
    while not isinstance(node, Token):
        for child in node.children:
            if child is not None and not (isinstance(child, Token) and child.type in _NO_PART):
                node = child
                break
        else:
            return next(leaves(node))
    return node


def last(node: Node) -> Token:
    while not isinstance(node, Token):
        for child in reversed(node.children):
            if child is not None and not (isinstance(child, Token) and child.type == "_NL"):
                node = child
                break
        else:
            raise ValueError(f"`{node.data}` has no words")
    return node


def start(token: Token) -> int:
    return token.start_pos


def end(token: Token) -> int:
    return token.end_pos


class Remarks:
    """The comments of a text by the word that they belong to. Each comment is handed out once."""

    def __init__(self, source: Source, file: Tree, comments: list[Token]) -> None:
        self.source = source
        self._above: dict[int, list[Remark]] = {}
        self._behind: dict[int, Remark] = {}
        words = [*leaves(file)]
        n = 0
        for c in comments:
            while n < len(words) and start(words[n]) < start(c):
                n += 1
            remark = Remark(str(c).rstrip(), self.blank_above(start(c)))
            if n > 0 and not self.newline(end(words[n - 1]), start(c)):
                self._behind[start(words[n - 1])] = remark
            else:
                self._above.setdefault(start(words[n]) if n < len(words) else -1, []).append(remark)

    def newline(self, start: int, end: int) -> bool:
        """Whether the text has a line end between two offsets."""
        return self.source.text.find("\n", start, end) >= 0

    def blank_above(self, offset: int) -> bool:
        line = self.source.line_column(offset)[0]
        return line > 1 and not self.source.line(line - 1).strip()

    def above(self, word: Token | None) -> list[Remark]:
        """The comments on lines of their own before a word; for None, those before the end of the file."""
        return self._above.pop(-1 if word is None else start(word), [])

    def ends_line(self, word: Token) -> bool:
        """Whether a comment follows a word on the same line."""
        return start(word) in self._behind

    def behind(self, word: Token) -> list[Remark]:
        """The comment that ends the line of a word, if there is one."""
        found = self._behind.pop(start(word), None)
        return [] if found is None else [found]


# The layout of each grammar rule.
#
# A rule that is not named here stands on one line, and its brackets are broken if they do not fit.


_CLOSER = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_NO_SPACE_BEFORE = frozenset(("COMMA", "SEMICOLON", "COLON", "DOT", "DOTS"))
_NO_SPACE_AFTER = frozenset(("DOT", "DOTS", "AT"))
_SPACE_BEFORE_BRACKET = frozenset(("ARROW", "STRING", "DESC"))
_TIGHT = frozenset(("keyword", "binding", "negate"))
"""Rules that are printed without spaces: `key=value`, `-x`."""
_WIDE = frozenset(("timed",))
"""Rules with spaces before brackets: in `1..64 at [8]`, `at` is a keyword, though it may be an array's name elsewhere."""
_CHAINS = frozenset(("binary", "logic", "compare"))
_LEVELS = {"PLUS": 0, "MINUS": 0, "STAR": 1, "SLASH": 1, "PERCENT": 1, "OR": 2, "AND": 3, "COMPARE": 4}
"""Operators of one level form one chain, which is broken before every operator or before none."""
_FLUSH = _CHAINS | {"conditional"}
_LISTS = frozenset(("arguments", "params", "types", "tensor_params", "attributes", "bindings", "index_specs"))
_NO_LAST_COMMA = frozenset(
    ("weight", "scan", "reducer", "operands", "let_tuple", "output_tuple", "annotation", "bound")
)

Nodes = Sequence[Node]


def _kind(node: Node) -> str:
    """The kind of a word, or the name of a node's rule."""
    return node.type if isinstance(node, Token) else node.data


def _children(node: Tree) -> list[Node]:
    return [c for c in node.children if c is not None and _kind(c) != "DOC"]


def _own(remark: Remark) -> Doc:
    return Comment(remark.text, True)


def _ending(remark: Remark) -> Doc:
    return Comment(remark.text, False)


def _split(nodes: Nodes, *kinds: str) -> tuple[Nodes, Nodes]:
    """The nodes before the first node of one of the kinds, and the nodes from it on."""
    at = next((n for n, node in enumerate(nodes) if _kind(node) in kinds), len(nodes))
    return nodes[:at], nodes[at:]


class Rules:
    """Makes documents of nodes, with every comment beside the word that it belongs to."""

    def __init__(self, remarks: Remarks) -> None:
        self.remarks = remarks
        self._methods: dict[str, Callable[[Nodes], Doc]] = {
            "compute": self._compute, "model": self._compute, "dims": self._dims, "assumptions": self._dims,
            "reducer": self._reducer,
            "intrinsic": self._intrinsic,
            "desc": self._headed, "module": self._module, "space": self._headed, "prior": self._headed,
            "program": self._headed, "use_names": self._map, "body": self._braces, "init": self._headed, "loop": self._headed,
            "select": self._headed, "case": self._case, "program_select": self._headed, "program_case": self._headed,
            "block": self._headed, "buffer": self._headed, "map": self._map,
            "slice": self._slice,
            "reduce": self._reduction, "reduce_by": self._reduction, "scan": self._scan,
            "const": self._assignment,
            "let": self._assignment, "let_stage": self._assignment, "output_stage": self._assignment,
            "let_whole": self._assignment, "output_whole": self._assignment, "store": self._assignment,
            "store_whole": self._assignment,
            "sets": self._assignment, "adds": self._assignment, "dim": self._assignment,
            "iterator": self._assignment,
        }  # fmt: skip

    # --- words, comments, nodes ---

    def token(self, token: Token) -> Doc:
        above, behind = self.remarks.above(token), self.remarks.behind(token)
        text = DocText(str(token))
        return join(*map(_own, above), text, *map(_ending, behind)) if above or behind else text

    def doc(self, node: Node, flush: bool = False) -> Doc:
        """The document of a node. With `flush` the node begins a line, so its further lines are not indented.

        A comment behind the node's last word does not break the node, only the group around it.
        """
        if isinstance(node, Token):
            return self.token(node)
        behind = self.remarks.behind(last(node))
        doc = self._rule(node, flush)
        return join(doc, *map(_ending, behind)) if behind else doc

    def _rule(self, node: Tree, flush: bool) -> Doc:
        children, kind = _children(node), _kind(node)
        if kind in _FLUSH:
            head, tail = self._conditional(children) if kind == "conditional" else self._chain(node)
            return group(head, *tail) if flush else group(head, indent(*tail))
        method = self._methods.get(kind)
        return method(children) if method else self._plain(children, kind)

    # --- on one line ---

    def _plain(self, nodes: Nodes, rule: str = "") -> Doc:
        """The nodes side by side. If they do not fit, the brackets and commas directly among them are broken."""
        out: list[Doc] = []
        listed = False
        before: Token | None = None
        n = 0
        while n < len(nodes):
            node = nodes[n]
            if before is not None and before.type == "COMMA":
                out.append(Line(" "))
                listed = True
            elif before is not None and rule not in _TIGHT and (rule in _WIDE or _spaced(before, node)):
                out.append(SPACE)
            if _kind(node) in ("LPAR", "LSQB"):
                start = n
                while _kind(nodes[n]) != _CLOSER[_kind(node)]:
                    n += 1
                out.append(self._bracket(nodes[start : n + 1], rule))
            else:
                out.append(self.doc(node))
            before = last(nodes[n])
            n += 1
        return group(out[0], indent(*out[1:])) if listed else join(*out)

    def _bracket(self, nodes: Nodes, rule: str) -> Doc:
        """`(a, b)` on one line, or one entry per line with a comma after the last; `;` separates entries as `,` does."""
        opener, *inner, closer = nodes
        entries: list[tuple[Node | None, list[Token]]] = []
        for node in _flat(inner):
            if isinstance(node, Token) and node.type in ("COMMA", "SEMICOLON"):
                entries += [] if entries else [(None, [])]
                entries[-1][1].append(node)
            else:
                entries.append((node, []))
        closed = self.token(opener) if isinstance(opener, Token) else join()
        parts: list[Doc] = []
        waiting: list[Remark] = []  # comments of a `,` that stand on lines below the entry before it
        for n, (node, signs) in enumerate(entries):
            final = n == len(entries) - 1
            if node is not None:
                parts += map(_own, (*waiting, *self.remarks.above(first(node))))
                parts.append(self.doc(node, flush=True))
                waiting = []
            if not final:
                parts.append(DocText(str(signs[-1])))
            elif rule not in _NO_LAST_COMMA and not (rule == "parens" and n == 0):
                parts.append(IfBroken(","))
            for sign in signs:
                waiting += self.remarks.above(sign)
                behind = self.remarks.behind(sign)
                if waiting:
                    waiting += behind
                else:
                    parts += map(_ending, behind)
            if not final:
                parts.append(Line(" "))
        waiting += self.remarks.above(first(closer))
        if not entries and not waiting:
            return join(closed, self.doc(closer))
        behind = self.remarks.behind(last(closer))
        inside = indent(Line(""), *parts, *map(_own, waiting))
        return join(group(closed, inside, Line(""), self.doc(closer)), *map(_ending, behind))

    def _map(self, nodes: Nodes) -> Doc:
        return self._bracket(nodes, "map")

    # --- expressions ---

    def _slice(self, nodes: Nodes) -> Doc:
        return join(*map(self.doc, nodes))

    def _chain(self, node: Tree) -> tuple[Doc, list[Doc]]:
        """The first operand, and the other operands with the operators in front of them."""
        level, links = _LEVELS[_kind(_children(node)[1])], list[Node]()
        lhs: Node = node
        while isinstance(lhs, Tree) and _kind(lhs) in _CHAINS and _LEVELS[_kind(_children(lhs)[1])] == level:
            lhs, *rest = _children(lhs)
            links[:0] = rest
        out: list[Doc] = []
        for op, operand in zip(links[0::2], links[1::2], strict=True):
            out += [Line(" "), self.doc(op), SPACE, self.doc(operand)]
        return self.doc(lhs), out

    def _conditional(self, nodes: Nodes) -> tuple[Doc, list[Doc]]:
        """A conditional, broken before `else`, and before `if` as well if the condition does not fit."""
        then, rest = _split(nodes, "IF")
        cond, other = _split(rest, "ELSE")
        return self._plain(then), [group(Line(" "), self._plain(cond)), Line(" "), self._plain(other)]

    def _reduction(self, nodes: Nodes) -> Doc:
        *head, body = nodes
        return group(self._plain(head), indent(Line(" "), self.doc(body, flush=True)))

    def _scan(self, nodes: Nodes) -> Doc:
        head, tail = _split(nodes, "INIT")
        init, step = _split(tail, "STEP")
        parts = (Line(" "), self._plain(init), Line(" "), self._plain(step))
        return group(self._plain(head, "scan"), indent(*parts))

    def _assignment(self, nodes: Nodes) -> Doc:
        lhs, (sign, value) = _split(nodes, "EQUAL", "ADDS")
        below = _kind(value) in _FLUSH or self.remarks.ends_line(last(sign))
        head = join(self._plain(lhs), SPACE, self.doc(sign))
        if below:
            return group(head, indent(Line(" "), self.doc(value, flush=True)))
        return join(head, SPACE, self.doc(value))

    # --- items ---

    def _headed(self, nodes: Nodes) -> Doc:
        """An item: words, annotations and, if there are any, braces."""
        head, braces = _split(nodes, "LBRACE")
        words, annotations = _split(head, "annotation")
        more = [part for a in annotations for part in (Line(" "), self.doc(a))]
        top = group(self._plain(words), indent(*more))
        return join(top, SPACE, self._braces(braces)) if braces else top

    def _case(self, nodes: Nodes) -> Doc:
        """The sizes of a case, and its statements."""
        *sizes, body = nodes
        return join(self._plain(sizes), SPACE, self.doc(body))

    def _compute(self, nodes: Nodes) -> Doc:
        head, braces = _split(nodes, "LBRACE")
        words, clauses = _split(head, "dims", "assumptions", "weights")
        if not clauses:
            return join(self._plain(words), SPACE, self._braces(braces))
        below = [part for c in clauses for part in (HARD, self.doc(c))]
        return join(self._plain(words), *below, HARD, self._braces(braces))

    def _dims(self, nodes: Nodes) -> Doc:
        where, *rest = nodes
        parts = [HARD if _kind(n) == "COMMA" else join() for n in (where, *rest)]
        below = [part for br, n in zip(parts, rest, strict=False) for part in (br, self.doc(n))]
        return join(self.doc(where), SPACE, indent(*below, columns=6 + (_kind(where) == "ASSUME")))

    def _module(self, nodes: Nodes) -> Doc:
        *head, body = nodes
        words, when = _split(head, "when")
        if not when:
            return join(self._plain(words), SPACE, self.doc(body))
        return join(self._plain(words), HARD, self.doc(when[0]), HARD, self.doc(body))

    def _reducer(self, nodes: Nodes) -> Doc:
        head, (sign, combine, word, identity, *assumed) = _split(nodes, "EQUAL")
        parts = [Line(" "), self.doc(combine, flush=True), Line(" "), self._plain([word, identity])]
        parts += [part for laws in assumed for part in (Line(" "), self.doc(laws))]
        return group(self._plain(head, "reducer"), SPACE, self.doc(sign), indent(*parts))

    def _intrinsic(self, nodes: Nodes) -> Doc:
        word, name, *parts = nodes
        lines = [d for p in parts for d in (HARD, self.doc(p))]
        return join(self.doc(word), SPACE, self.doc(name), indent(*lines))

    # --- braces ---

    def _braces(self, nodes: Nodes) -> Doc:
        """Statements in braces: on one line if they are written so and fit, else one per line."""
        opener, *inner, closer = nodes
        remarks = self.remarks
        statements = [n for n in inner if _kind(n) != "_NL"]
        ends = [end(last(opener)), *(end(last(s)) for s in statements)]
        starts = [*(start(first(s)) for s in statements), start(first(closer))]
        apart = [remarks.newline(a, b) for a, b in zip(ends, starts, strict=True)]
        lines: list[Doc] = []
        together: list[Doc] = []
        for newline, s in zip(apart, statements, strict=False):
            if not newline and together:
                together += [Line("; "), self.doc(s)]
                continue
            if together:
                lines.append(group(*together))
            word = first(s)
            for remark in remarks.above(word):
                lines += [Line(None, remark.blank and bool(lines)), _own(remark)]
            lines.append(Line(None, remarks.blank_above(start(word)) and bool(lines)))
            together = [self.doc(s)]
        if not any(apart):
            inside = (Line(" "), *together) if together else ()
            return group(self.doc(opener), indent(*inside), Line(" ") if together else join(), self.doc(closer))
        lines += [group(*together)] if together else []
        for remark in remarks.above(first(closer)):
            lines += [Line(None, remark.blank and bool(lines)), _own(remark)]
        return join(self.doc(opener), indent(*lines), HARD, self.doc(closer))


def _flat(nodes: Nodes) -> list[Node]:
    """The entries and commas of nested list nodes, as one list."""
    out: list[Node] = []
    for node in nodes:
        out += _flat(_children(node)) if isinstance(node, Tree) and _kind(node) in _LISTS else [node]
    return out


def _spaced(before: Token, node: Node) -> bool:
    kind = _kind(node)
    if kind in ("LPAR", "LSQB"):
        return before.type in _SPACE_BEFORE_BRACKET
    if kind in ("weight", "shape"):
        return False
    return first(node).type not in _NO_SPACE_BEFORE and before.type not in _NO_SPACE_AFTER


WIDTH = 120

_TOGETHER = frozenset(("use", "task", "target", "reducer"))
"""Items that may follow others of their kind without an empty line between them."""


def format_text(source: Source) -> str:
    """The formatted text. Raises TschedError if the text does not parse."""
    return format_parsed(read(source))


def format_parsed(text: Text) -> str:
    """As `format_text`, for a text that is parsed already."""
    remarks = Remarks(text.file.source, text.words, text.comments)
    return render(_file(text.words, Rules(remarks)), WIDTH)


def apart(before: str, kind: str) -> bool:
    """Whether there is an empty line between two items of these kinds, whatever the writer does."""
    return not (kind == before and kind in _TOGETHER)


def _file(file: Tree, rules: Rules) -> Doc:
    out: list[Doc] = []
    remarks = rules.remarks
    before = ""
    for item in file.children:
        assert isinstance(item, Tree)
        kind, word = item.data, first(item)
        above = remarks.above(word)
        blanks = [r.blank for r in above] + [remarks.blank_above(start(word))]
        if before and apart(before, kind):
            blanks[0] = True
        for remark, blank in zip(above, blanks, strict=False):
            out += [Line(None, blank)] if out else []
            out.append(Comment(remark.text, True))
        out += [Line(None, blanks[-1])] if out else []
        out.append(rules.doc(item))
        before = kind
    for n, remark in enumerate(remarks.above(None)):
        out += [Line(None, remark.blank or (n == 0 and before not in _TOGETHER))] if out else []
        out.append(Comment(remark.text, True))
    return join(*out, HARD) if out else join()
