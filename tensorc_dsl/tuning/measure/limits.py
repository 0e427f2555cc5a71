"""Limits the memory and time of checking a task, and reports tasks that this machine cannot check."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, prod

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.processes.memory import available
from tensorc_dsl.reference.evaluate import shape_of, unscheduled_nests
from tensorc_dsl.reference.inputs import has_extremes
from tensorc_dsl.reference.values import alive_steps
from tensorc_dsl.reference.work import sizing

_FLOAT64_COPIES = 4
"""The reference, its tolerance, and what evaluating them holds at once, per element."""

_STORED_COPIES = 3
"""A parameter as it was made, as the kernel gets it, and as it is compared."""

_USABLE = 0.9
"""The share of what is available that children may fill; the rest is for what else the machine does."""

_LEAST = 512 << 20
"""A child needs about a third of this before it has seen a candidate."""

_MOST_TO_BUILD = 4 << 30
"""Most candidates take a tenth of this, LLVM included."""


ENOUGH_COMPARED = 0.9
"""The share of the results that a check compares at least, or a warning says how many."""


@problem(
    "W0706",
    "a right result says little: {share:.0%} of the elements are compared, and the reference has no numbers for the others",
    help="say what the inputs contain, so that they are drawn so: `assume A positive_definite`, `assume X in 0..1`",
)
def LITTLE_COMPARED(*, share: float) -> None: ...
@problem(
    "E0706",
    "checking `{task}` takes about {needed:.3g} GB; this machine has {there:.3g} GB to spare",
    help="tune a smaller size of the same compute; `verify` and `compile --replay` take a schedule of this one without "
    "running it",
)
def TOO_MUCH_MEMORY(*, task: str, needed: float, there: float) -> None: ...
@problem(
    "E0706",
    "`{task}` cannot be checked: {why}",
    help="tune a smaller size of the same compute; `verify` and `compile --replay` take a schedule of this one without "
    "running it",
)
def TOO_LARGE(*, task: str, why: str) -> None: ...
@problem(
    "E0707",
    "the reference of `{task}` takes more than {seconds:g} s",
    help="tune a smaller size of the same compute; `verify` and `compile --replay` take a schedule of this one without "
    "running it",
)
def TOO_SLOW(*, task: str, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes that each builder and the runner may fill."""

    builder: int
    runner: int


def memory_of(there: int, builders: int) -> Memory:
    """The memory limits of children that share the available bytes.

    Builders compile at the same time. The runner works when they have nothing to do, and may have all: a schedule may keep
    copies.
    """
    return Memory(max(_LEAST, min(_MOST_TO_BUILD, there // max(builders, 1))), max(_LEAST, there))


def memory_needed(program: Program) -> int:
    """An estimate of the bytes that checking one kernel takes, at all the sizes at which it is checked."""
    found = sizing(program)
    every = [*found.checked, *(x for x in found.timed if x not in found.checked)]
    every += every[:1] if has_extremes(program) else []
    total = 0
    for bound in (bind(program, x) for x in every):
        alive = alive_steps(bound, unscheduled_nests(bound))
        for b in (*bound.params, *bound.buffers):
            whole = shape_of(b)
            kept = alive[b.name].shape(whole) if b.name in alive else whole
            total += prod(whole) * _STORED_COPIES * b.dtype.bytes + prod(kept) * _FLOAT64_COPIES * 8
    return total


def require_memory(program: Program) -> int:
    """The bytes that children may fill. Raises TschedError (E0706) when checking a kernel of `program` takes more."""
    needed, there = memory_needed(program), int(_USABLE * available())
    if needed > there:
        raise TschedError(TOO_MUCH_MEMORY(None, task=program.name, needed=needed / 1e9, there=there / 1e9))
    return there


def little_compared(share: float) -> Diagnostic | None:
    """A warning where a check compares less than nine tenths of the results."""
    return LITTLE_COMPARED(None, share=floor(share * 100) / 100) if share < ENOUGH_COMPARED else None


def too_large(program: Program, why: str) -> TschedError:
    """The reference does not fit into what the runner may have (E0706)."""
    return TschedError(TOO_LARGE(None, task=program.name, why=why))


def too_slow(program: Program, seconds: float) -> TschedError:
    """The reference was not done in time (E0707)."""
    return TschedError(TOO_SLOW(None, task=program.name, seconds=seconds))
