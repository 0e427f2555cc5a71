"""Draws that were made, with their distributions and decisions."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensorc_dsl.trace.distribution import Decision, Distribution
from tensorc_dsl.trace.draws.branch import Branch
from tensorc_dsl.trace.draws.categorical import Categorical
from tensorc_dsl.trace.draws.compute_location import ComputeLocation
from tensorc_dsl.trace.draws.integer import Integer
from tensorc_dsl.trace.draws.partial_tile import PartialTile
from tensorc_dsl.trace.draws.partitioned_tile import PartitionedTile
from tensorc_dsl.trace.draws.perfect_tile import PerfectTile
from tensorc_dsl.trace.draws.permutation import Permutation

__all__ = [
    "Branch", "Categorical", "ComputeLocation", "Decision", "Distribution", "Draw", "Integer", "PartialTile",
    "PartitionedTile", "PerfectTile", "Permutation",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Draw:
    """A draw that was made. A `pinned` one was fixed in the text or by a handler, so a search cannot change it.

    Its `name` is unique in the trace. Its `owner` says to people whose it is, `multi_level_tiling.factors of C`: the module,
    the name in its text, and what the module was applied to; it is empty for a draw of the schedule itself.
    """

    name: str
    distribution: Distribution
    decision: Decision
    pinned: bool = False
    owner: str = field(default="", compare=False)

    @property
    def title(self) -> str:
        """What a report calls it."""
        return self.owner or self.name
