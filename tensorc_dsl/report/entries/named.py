"""Finds the entries for a name: of a primitive, a draw, a query, a function, an item of the standard library, or a term."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.kinds import LIST, STR
from tensorc_dsl.report.entries.library import item_entry, library
from tensorc_dsl.report.entries.markdown import table
from tensorc_dsl.report.entries.schedule import SUBJECTS, draw_entry, primitive_entry, query_row
from tensorc_dsl.report.entries.vocabulary import (
    MATHS_HEAD,
    REDUCERS_HEAD,
    SIGNATURES_HEAD,
    maths_rows,
    reducer_rows,
    signature_rows,
)
from tensorc_dsl.resources import glossary
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.queries.applicable import asking
from tensorc_dsl.trace.draws import DRAWS

_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./|errors\.md)[^)]*\)")


def entries(name: str) -> list[str]:
    """All entries for the name, as Markdown, in the order of the reference; none for an unknown name.

    A query is `loops` or `b.loops`; an item of the library `matmul` or `std.ops.matmul`.
    """
    return [_LINK.sub(r"\1", text) for known, text in _all() if name in known]


def names() -> set[str]:
    """All names that have an entry."""
    return {name for known, _ in _all() for name in known}


@cache
def _all() -> tuple[tuple[tuple[str, ...], str], ...]:
    """Every entry, with the names that select it."""
    return (*_declared(), *_words(), *_library(), *_terms())


def _declared() -> Iterator[tuple[tuple[str, ...], str]]:
    for p in PRIMITIVES.values():
        asked = (n for q in asking(p) for n in _asked(SUBJECTS[q.subject][1], q.name))
        yield (p.name, *asked), f"{primitive_entry(p)}\n\nA step of schedules and modules."
    for d in DRAWS.values():
        yield (d.name,), f"{draw_entry(d)}\n\nA draw of schedules and modules."
    for subject, (title, letter) in SUBJECTS.items():
        for q in (q for q in QUERIES[subject].values() if not q.step):
            rows = [query_row(q)]
            yield _asked(letter, q.name), _rows(q.name, f"{title}: a query", ("query", *SIGNATURES_HEAD), rows)


def _words() -> Iterator[tuple[tuple[str, ...], str]]:
    for name in v.FUNCTIONS:
        rows = signature_rows({name: v.FUNCTIONS[name]})
        yield (name,), _rows(name, "A function of schedules and modules", ("function", *SIGNATURES_HEAD), rows)
    for name, signature in v.COMPOUNDS.items():
        rows = signature_rows({name: signature})
        yield (
            (name, f"can_{name}"),
            _rows(name, "Several steps of schedules and modules", ("call", *SIGNATURES_HEAD), rows),
        )
    for kind, letter in ((STR, "s"), (LIST, "list")):
        for name, signature in v.METHODS[kind].items():
            rows = signature_rows({name: signature}, f"{letter}.")
            yield _asked(letter, name), _rows(name, "A method", ("method", *SIGNATURES_HEAD), rows)
    for name, row in reducer_rows().items():
        yield (name,), _rows(name, "A reducer of computes", REDUCERS_HEAD, [row])
    for name, row in maths_rows().items():
        yield (name,), _rows(name, "A maths function of computes", MATHS_HEAD, [row])


def _library() -> Iterator[tuple[tuple[str, ...], str]]:
    for file in library():
        for item in file.items:
            path, folder = f"{file.path}.{item.name}", file.path.rpartition(".")[0]
            text = f"{item_entry(item)}\n\n`use {file.path}.{{{item.name}}}`, from `stdlib/{file.place}`."
            yield (item.name, path, f"{folder}.{item.name}"), text


def _terms() -> Iterator[tuple[tuple[str, ...], str]]:
    for terms, text in glossary():
        yield terms, f"### {terms[0]}\n\n{text[0].upper()}{text[1:]}."


def _asked(letter: str, name: str) -> tuple[str, str]:
    return name, f"{letter}.{name}"


def _rows(name: str, what: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"### `{name}`\n\n{what}.\n\n{table(head, rows)}"
