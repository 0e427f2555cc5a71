"""The meaning of a name: a definition in a file, a word of the language, or files."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.ir.kinds import is_kind
from tensorc_dsl.syntax import tree as t


@dataclass(frozen=True, slots=True)
class Written:
    """The places where the name is defined: one, or one in each branch that binds it."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A word of the language: its kind ("primitive", "draw", "query", …), its name, and its description, if any.

    The name of a parameter begins with the name of its owner: `split.partial`.
    """

    kind: str
    name: str
    doc: str


@dataclass(frozen=True, slots=True)
class Files:
    """The files that the path of a `use` stands for."""

    sources: tuple[Source, ...]


Definition = Written | Entry | Files


@dataclass(frozen=True, slots=True)
class Reference:
    """A name in a file, with its meaning."""

    span: Span
    definition: Definition

    @property
    def name(self) -> str:
        return self.span.text


def written(name: t.Word | t.Name) -> Written:
    return Written((name.span,))


def entry(kind: str, name: str, known: Container[str]) -> Entry | None:
    """The entry for a word of that kind; None if there is no such word."""
    return Entry(kind, str(name), "") if name in known else None


def target_kind(name: str) -> Entry | None:
    """The entry for a kind of targets. Only for a name that is none of ours are the installed packages looked through."""
    return Entry("target", str(name), "") if is_kind(str(name)) else None


def by_place(found: Iterable[Reference]) -> tuple[Reference, ...]:
    """The references in text order, one for each place: the first that was reported."""
    once: dict[tuple[int, int], Reference] = {}
    for r in found:
        once.setdefault((r.span.start, r.span.end), r)
    return tuple(once[place] for place in sorted(once))
