"""Primitives, draws and queries, from their declarations."""

from __future__ import annotations

from collections import Counter
from textwrap import fill

from tensorc_dsl.faces.report.entries import (
    SUBJECTS,
    code,
    draw_entry,
    listing,
    primitive_entry,
    query_row,
)
from tensorc_dsl.schedule.primitives import ALL_STEPS, PRIMITIVES
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.trace.draws import DRAWS


def _shared() -> set[tuple[str, str]]:
    """The refusals that several primitives declare: codes with messages."""
    counts = Counter(key for p in ALL_STEPS.values() for key in {(r.code, r.message) for r in p.refusals})
    return {key for key, count in counts.items() if count > 1}


def primitives() -> str:
    shared = _shared()
    return "\n\n".join(primitive_entry(p, shared) for _, p in sorted(ALL_STEPS.items()))


def primitive_names() -> str:
    return fill(" ".join(code(name) for name in sorted(PRIMITIVES)), 118)


def draws() -> str:
    return "\n\n".join(draw_entry(d) for _, d in sorted(DRAWS.items()))


def queries() -> str:
    out: list[str] = []
    for subject, (title, _) in SUBJECTS.items():
        rows = [query_row(q) for q in QUERIES[subject].values() if not q.step]
        out.append(f"### {title}\n\n{listing(rows)}")
    assert set(SUBJECTS) == set(QUERIES), "a kind of thing that can be asked has no chapter"
    return "\n\n".join(out)
