"""The computes and reducers that a compute can name: those of its file, and those that the file uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorc_dsl.syntax import tree


@dataclass(frozen=True, slots=True)
class Definitions:
    """The computes and reducers that the items of one file can name."""

    computes: Mapping[str, tree.ComputeDef] = field(default_factory=dict[str, tree.ComputeDef])
    reducers: Mapping[str, tree.ReducerDef] = field(default_factory=dict[str, tree.ReducerDef])


_NONE = Definitions()


@dataclass(slots=True)
class Library:
    """The definitions of every file, by the name of its source. A compute sees the definitions of its own file.

    So the calls of a used compute mean the names of its own file, whatever the user's file calls so.
    """

    files: dict[str, Definitions] = field(default_factory=dict[str, Definitions])
    heights: dict[int, tuple[tree.ComputeDef, int]] = field(
        default_factory=dict[int, tuple[tree.ComputeDef, int]], compare=False, repr=False
    )
    """By the identity of a compute, which is kept, how many calls are below it, one in the other (`calls.recursion`)."""

    def seen_by(self, item: tree.ComputeDef | tree.ReducerDef) -> Definitions:
        return self.files.get(item.span.source.name, _NONE)
