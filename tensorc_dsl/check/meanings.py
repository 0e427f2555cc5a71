"""What a name means: something that is written somewhere, a word of the language, or files."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from tensorc_dsl.source import Source, Span
from tensorc_dsl.syntax import tree as t


@dataclass(frozen=True, slots=True)
class Written:
    """The places of the name where it is defined: one, or one in each branch that binds it."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A word of the language: its kind ("primitive", "draw", "query", …), its name, and the words about it, if any.

    A parameter has the name of what it belongs to before its own: `split.partial`.
    """

    kind: str
    name: str
    doc: str


@dataclass(frozen=True, slots=True)
class Files:
    """What the path of a `use` leads to."""

    sources: tuple[Source, ...]


Definition = Written | Entry | Files


@dataclass(frozen=True, slots=True)
class Reference:
    """A name in a file, and what it means there."""

    span: Span
    definition: Definition

    @property
    def name(self) -> str:
        return self.span.text


def written(name: t.Word | t.Name) -> Written:
    return Written((name.span,))


def entry(kind: str, name: str, known: Container[str]) -> Entry | None:
    """The word of that kind, if there is one."""
    return Entry(kind, str(name), "") if name in known else None


def by_place(found: Iterable[Reference]) -> tuple[Reference, ...]:
    """In the order of the text, each place once: the first that was said of it."""
    once: dict[tuple[int, int], Reference] = {}
    for r in found:
        once.setdefault((r.span.start, r.span.end), r)
    return tuple(once[place] for place in sorted(once))
