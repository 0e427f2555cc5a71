"""Primitives, draws and queries, from their declarations."""

from __future__ import annotations

from textwrap import fill

from tensorc_dsl.report.entries.markdown import code, table
from tensorc_dsl.report.entries.schedule import SUBJECTS, draw_entry, primitive_entry, query_row
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.trace.draws import DRAWS


def primitives() -> str:
    return "\n\n".join(primitive_entry(p) for _, p in sorted(PRIMITIVES.items()))


def primitive_names() -> str:
    return fill(" ".join(code(name) for name in sorted(PRIMITIVES)), 118)


def draws() -> str:
    return "\n\n".join(draw_entry(d) for _, d in sorted(DRAWS.items()))


def queries() -> str:
    out: list[str] = []
    for subject, (title, _) in SUBJECTS.items():
        rows = [query_row(q) for q in QUERIES[subject].values() if not q.step]
        out.append(f"### {title}\n\n{table(['query', 'is', 'which says'], rows)}")
    assert set(SUBJECTS) == set(QUERIES), "a kind of thing that can be asked has no chapter"
    return "\n\n".join(out)
