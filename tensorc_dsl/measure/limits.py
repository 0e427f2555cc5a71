"""Tasks that this machine cannot check: too large for its memory, or for the time that a reference may take."""

from __future__ import annotations

from math import prod

import psutil

from tensorc_dsl.diagnostic import Diagnostic, TschedError, help_note
from tensorc_dsl.ir.bind import bind
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.open_sizes import sizing

_FLOAT64_COPIES = 4
"""The reference, its tolerance, and what evaluating them holds at once, per element."""

_STORED_COPIES = 3
"""A parameter as it was made, as the kernel gets it, and as it is compared."""


def memory_needed(program: Program) -> int:
    """An estimate of the bytes that checking one kernel takes, at all the sizes at which it is checked."""
    found = sizing(program)
    every = [*found.checked, *(x for x in found.timed if x not in found.checked)]
    total = 0
    for bound in (bind(program, x) for x in every):
        for b in (*bound.params, *bound.buffers):
            total += prod(shape_of(b)) * (_STORED_COPIES * b.dtype.bytes + _FLOAT64_COPIES * 8)
    return total


def require_memory(program: Program) -> None:
    """Raise TschedError (E0706) when checking a kernel of `program` takes more memory than this machine has."""
    needed, there = memory_needed(program), psutil.virtual_memory().total
    if needed > there:
        raise _too_much(
            "E0706",
            f"checking `{program.name}` takes about {needed / 1e9:.3g} GB; this machine has {there / 1e9:.3g} GB",
        )


def too_slow(program: Program, seconds: float) -> TschedError:
    """The reference was not done in time (E0707)."""
    return _too_much("E0707", f"the reference of `{program.name}` takes more than {seconds:g} s")


def _too_much(code: str, message: str) -> TschedError:
    repair = "tune a smaller size of the same compute, and `replay` its schedule"
    return TschedError(Diagnostic(code, message, None, notes=(help_note(repair),)))
