"""Remembers what the check of each item of a file found, for the next version of the file.

An item is an object: one that two versions of a file share is the same in both. It means the same as before if no name that
it mentions means something else, of which no item is the same, or is the same and mentions such a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.check.items import Memory, Names
from tensorc_dsl.check.positions import Reference
from tensorc_dsl.ir.program import Program
from tensorc_dsl.syntax import tree as t

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_Meanings = dict[str, tuple[object, ...]]


@dataclass(slots=True)
class Entry:
    """What is known of an item as long as it means the same."""

    item: t.Item
    words: frozenset[str]
    findings: list[Diagnostic] | None = None
    elaborated: Program | None = None
    references: tuple[Reference, ...] | None = None
    """The names in it; None until they are needed."""
    refusals: tuple[object, tuple[Diagnostic, ...] | None] | None = None
    """Of a task: what stands for its schedule, and what is refused of it, None if that takes too long to know."""


def _named(item: t.Item) -> str | None:
    return None if isinstance(item, t.UseDecl) else str(item.name)


@dataclass(slots=True)
class Remembered(Memory):
    """The memory of one file. It holds what the last check found, and nothing older."""

    entries: dict[int, Entry] = field(default_factory=dict[int, Entry])
    """By the identity of the item, which the entry keeps alive."""
    _meanings: _Meanings = field(default_factory=_Meanings)
    _constants: frozenset[str] = frozenset()

    def entry(self, item: t.Item) -> Entry:
        """What is known of an item of the file that was checked last."""
        found = self.entries.get(id(item))
        if found is None:
            words = frozenset(_WORD.findall(item.span.text))
            self.entries[id(item)] = found = Entry(item, words)
        return found

    def begin(self, items: Iterable[t.Item], names: Names) -> None:
        before, now = self._meanings, _meanings(names)
        changed = {n for n in before.keys() | now.keys() if not _same(before.get(n, ()), now.get(n, ()))}
        renamed = before.keys() != now.keys()
        old, self.entries, self._meanings = self.entries, {}, now
        listed = list(items)
        # A constant is hidden by names that the text of an item does not have, such as those of the blocks of its compute.
        constants, self._constants = self._constants, frozenset(names.constants)
        kept = [e for item in listed if (e := old.get(id(item))) is not None and constants == self._constants]
        changed |= {n for item in listed if id(item) not in old and (n := _named(item)) is not None}
        # A name means something else, too, if what it stands for mentions such a name.
        while stale := [e for e in kept if not e.words.isdisjoint(changed)]:
            kept = [e for e in kept if e.words.isdisjoint(changed)]
            changed |= {n for e in stale if (n := _named(e.item)) is not None}
        for e in kept:
            # Suggestions are made from all names, and notes tell lines, which may have moved.
            if e.findings and (renamed or any(d.notes for d in e.findings)):
                e.findings = None
            self.entries[id(e.item)] = e

    def findings(self, item: t.Item, names: Names, check: Callable[[], list[Diagnostic]]) -> list[Diagnostic]:
        known = self.entry(item)
        name = _named(item)
        if known.findings is None:
            known.findings = check()
            known.elaborated = names.elaborated.get(name) if isinstance(item, t.TaskDef) and name else None
            return known.findings
        if isinstance(item, t.ComputeDef) and known.findings:
            names.broken.add(item.name)
        if known.elaborated is not None and name is not None:
            names.elaborated[name] = known.elaborated
        return known.findings


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether both are the same objects."""
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _meanings(names: Names) -> _Meanings:
    """The items that each name stands for."""
    out: dict[str, list[object]] = {}
    for table in (
        names.computes, names.modules, names.spaces, names.schedules, names.priors, names.tasks, names.programs,
        names.reducers, names.targets, names.intrinsics, names.constants,
    ):  # fmt: skip
        for name, item in table.items():
            out.setdefault(str(name), []).append(item)
    return {name: tuple(items) for name, items in out.items()}
