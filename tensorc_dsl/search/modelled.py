"""Predictions of a backend's model of time for candidates before any is measured."""

from __future__ import annotations

from tensorc_dsl.backend.once import lowered_once, lowering_for
from tensorc_dsl.ir.bind import Sizes
from tensorc_dsl.ir.memo import by_identity
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError

KEPT = 1024
"""Programs whose cycles are kept."""

_Key = tuple[tuple[tuple[str, int], ...], Target]


def modelled(program: Program, sizes: Sizes, target: Target) -> float | None:
    """The cycles of a scheduled program at these sizes, computed at the first request; infinite if it cannot run.

    None where there is no model, or no code for the program.
    """
    known, key = _known(program), _key(sizes, target)
    if key not in known:
        try:
            kernel = lowered_once(program, target).packed.unpack()
            known[key] = lowering_for(target).cycles(kernel, target, sizes, {})
        except LowerError:
            known[key] = None
    return known[key]


def remember_cycles(program: Program, sizes: Sizes, target: Target, cycles: float | None) -> None:
    """The cycles of the program are known from another process."""
    _known(program)[_key(sizes, target)] = cycles


def _key(sizes: Sizes, target: Target) -> _Key:
    return tuple(sorted(sizes.items())), target


@by_identity(KEPT)
def _known(_program: Program) -> dict[_Key, float | None]:
    return {}
