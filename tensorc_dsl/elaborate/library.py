"""What a compute can name besides its tensors: the computes and reducers of its file, and of those that file uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorc_dsl.syntax import tree


@dataclass(frozen=True, slots=True)
class Definitions:
    """The computes and reducers that the items of one file can name, its own and those it uses."""

    computes: Mapping[str, tree.ComputeDef] = field(default_factory=dict[str, tree.ComputeDef])
    reducers: Mapping[str, tree.ReducerDef] = field(default_factory=dict[str, tree.ReducerDef])


_NONE = Definitions()


@dataclass(slots=True)
class Library:
    """The definitions of every file, by the name of its source: a compute sees those of the file that it stands in.

    So what a used compute calls is what its own file means by that name, whatever the user calls so.
    """

    files: dict[str, Definitions] = field(default_factory=dict[str, Definitions])

    def seen_by(self, item: tree.ComputeDef | tree.ReducerDef) -> Definitions:
        return self.files.get(item.span.source.name, _NONE)
