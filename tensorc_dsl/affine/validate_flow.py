"""Where values come from: for each read, which write it sees, exactly.

The last write before a read is found as Feautrier found it ("Dataflow analysis of array and scalar references", 1991):
the latest in lexicographic order among those that touch the element earlier. Updates that commute are not followed one by
one. What a read sees of them is a `Total`: the value that the last other write left, and the set of all updates since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.affine import isl
from tensorc_dsl.affine.validate_code import Code, Statement
from tensorc_dsl.ir.expr import Expr, Load


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """A reduction's value. Instances are those of `at`: of the write it starts from, or of a read of an unfinished one."""

    kind: str
    at: Statement
    start: tuple[tuple[Statement, isl.Map], ...]
    """Per statement that it may start from: the map from an instance of the total to an instance of that."""
    terms: tuple[tuple[Statement, isl.Map], ...]
    """Per statement that updates it: the map from an instance of the total to the instances of that, all of them."""
    finished: bool


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """One of the things that a read can see, and from which instances of the reader to which of its own."""

    source: Statement | Total
    instances: isl.Map


class Flow:
    """The sources of a program's reads. Raises NotAffine for subscripts that are not affine."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self._seen: dict[tuple[int, str, tuple[Expr, ...]], tuple[Seen, ...]] = {}
        self._started: dict[int, tuple[tuple[Statement, isl.Map], ...]] = {}
        self._totals: dict[int, Total] = {}

    def seen(self, reader: Statement, read: Load) -> tuple[Seen, ...]:
        """What a read of a written buffer sees; where none of it applies, nothing has been written."""
        key = (reader.number, read.buffer, read.indices)
        if key not in self._seen:
            self._seen[key] = self._find(reader, read)
        return self._seen[key]

    def _find(self, reader: Statement, read: Load) -> tuple[Seen, ...]:
        element = self.code.touched(reader, read.buffer, read.indices)
        updates, others = self._split(read.buffer)
        last = self._last(reader, element, others)
        if not updates:
            return tuple(Seen(w, m) for w, m in last)
        out: list[Seen] = []
        for w, m in last:
            total = self._total(w, updates)
            if all(m.apply_range(t).intersect(self._not_before(u, reader)).is_empty() for u, t in total.terms):
                out.append(Seen(total, m))
                continue
            terms = tuple(
                (u, m.apply_range(t).intersect(self.code.before(u, reader).reverse())) for u, t in total.terms
            )
            same = isl.Map.identity(m.domain().get_space().map_from_set()).intersect_domain(m.domain())
            out.append(Seen(Total(total.kind, reader, ((w, m),), terms, finished=False), same))
        return tuple(out)

    def _split(self, buffer: str) -> tuple[list[Statement], list[Statement]]:
        """The statements that write a buffer: updates that all commute with each other, and others."""
        writers = self.code.writers.get(buffer, [])
        kinds = {s.accumulates.kind for s in writers if s.accumulates}
        if len(kinds) != 1:
            return [], writers
        return [s for s in writers if s.accumulates], [s for s in writers if not s.accumulates]

    def _total(self, start: Statement, updates: Sequence[Statement]) -> Total:
        if start.number not in self._totals:
            terms: list[tuple[Statement, isl.Map]] = []
            for u in updates:
                terms += [(u, m.reverse()) for w, m in self._starts(u) if w is start]
            assert updates[0].accumulates is not None
            same = isl.Map.identity(start.domain.get_space().map_from_set()).intersect_domain(start.domain)
            self._totals[start.number] = Total(
                updates[0].accumulates.kind, start, ((start, same),), tuple(terms), finished=True
            )
        return self._totals[start.number]

    def _starts(self, update: Statement) -> tuple[tuple[Statement, isl.Map], ...]:
        """The last write that is no update before each instance of an update."""
        if update.number not in self._started:
            _, others = self._split(update.store.buffer)
            self._started[update.number] = self._last(update, self.code.written(update), others)
        return self._started[update.number]

    def _last(
        self, reader: Statement, element: isl.Map, writers: Sequence[Statement]
    ) -> tuple[tuple[Statement, isl.Map], ...]:
        """The last of the writers' instances that writes the element before each instance of the reader."""
        found: list[tuple[Statement, isl.Map]] = []
        for w in writers:
            earlier = element.apply_range(self.code.written(w).reverse())
            earlier = earlier.intersect(self.code.before(w, reader).reverse())
            if earlier.is_empty():
                continue
            if not earlier.is_single_valued():
                earlier = earlier.lexmax()
            found.append((w, earlier.coalesce()))
        out: list[tuple[Statement, isl.Map]] = []
        for k, (w, m) in enumerate(found):
            for j, (v, n) in enumerate(found):
                if j == k or m.domain().is_disjoint(n.domain()):
                    continue
                both = m.range_product(n).intersect_range(self.code.before(w, v).wrap())
                m = m.subtract_domain(both.domain())
            if not m.is_empty():
                out.append((w, m.coalesce()))
        return tuple(out)

    def _not_before(self, update: Statement, reader: Statement) -> isl.Map:
        """From the instances of the reader to those of the update that are no earlier."""
        later = self.code.before(reader, update)
        if reader is update:
            later = later.union(isl.Map.identity(later.get_space()))
        return later
