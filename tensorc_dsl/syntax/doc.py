"""Documents: text with the positions at which it may be broken, and their renderer (Wadler, "A prettier printer", 2003).

A `Group` is printed on one line if that fits; otherwise all of its own `Line`s become line ends. A line comment ends its
line, so a group that contains one is broken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """Prints `flat` if its group is on one line, else a line end; None is always a line end. `blank` adds an empty line."""

    flat: str | None
    blank: bool = False


@dataclass(frozen=True, slots=True)
class Comment:
    """A line comment, on a line of its own (`own`) or at the end of the current line."""

    text: str
    own: bool


@dataclass(frozen=True, slots=True)
class IfBroken:
    """Text that is printed only if its group is broken, such as a trailing comma."""

    text: str


@dataclass(frozen=True, slots=True)
class Join:
    parts: tuple[Doc, ...]
    breaks: bool


@dataclass(frozen=True, slots=True)
class Indent:
    doc: Doc
    columns: int
    breaks: bool


@dataclass(frozen=True, slots=True)
class Group:
    doc: Doc
    breaks: bool


Doc = Text | Line | Comment | IfBroken | Join | Indent | Group

SPACE = Text(" ")
HARD = Line(None)


def _breaks(doc: Doc) -> bool:
    match doc:
        case Text() | IfBroken():
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


def separated(parts: Iterable[Doc], between: Doc) -> Doc:
    out: list[Doc] = []
    for p in parts:
        out += [between, p] if out else [p]
    return join(*out)


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
            case Text(text=text):
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
            case Text(text=text):
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
