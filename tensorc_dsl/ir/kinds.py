"""The kinds of targets, and what a backend declares of its own: no layer above the backends knows one by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.extensions import BACKENDS, KINDS
from tensorc_dsl.base.source import Span
from tensorc_dsl.ir.program import Intrinsic


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A kind of targets.

    Code of an instruction has one of `forms`, and `faults` says what is wrong with it. `facts` are those that each `target`
    of this kind states: they are 0 for other machines, and within limits of 0 there is no schedule.
    """

    forms: tuple[str, ...] = ("asm", "call")
    facts: tuple[str, ...] = ()
    faults: Callable[[Intrinsic, str, Span], Iterable[Diagnostic]] | None = None


@cache
def kind_of(name: str) -> TargetKind:
    """What the backend of that kind declares; a backend need not declare anything. Raises TschedError (E0930)."""
    found = KINDS.load(name)
    return TargetKind() if found is None else found


def kinds() -> tuple[str, ...]:
    """All kinds of targets, sorted: those of the backends that are installed."""
    return BACKENDS.names()


def own_kinds() -> tuple[str, ...]:
    """The kinds of targets that exist whatever is installed, sorted."""
    return tuple(sorted(BACKENDS.own()))


def is_kind(name: str) -> bool:
    """Whether `name` is a kind of targets."""
    return BACKENDS.module(name) is not None
