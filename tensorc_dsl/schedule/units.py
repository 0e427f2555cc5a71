"""Instructions by name, and tensorized nests, which stay whole: after every step each still does what its instruction does.

The loops of such a nest have a kind, so steps over loops refuse them as they refuse parallel ones. What is left are steps
that reach inside otherwise: a block that moves in, a producer that is inlined, an operand that gets another layout. They
are welcome as long as the proof of `tensorize` still holds.
"""

from __future__ import annotations

from tensorc_dsl.affine.instruction import Mismatch, match_nest
from tensorc_dsl.ir.program import For, Intrinsic, LoopKind, Program, intrinsic_of, walk
from tensorc_dsl.schedule.refusal import Refusal
from tensorc_dsl.schedule.rewrite import loops_below

NO_INTRINSIC = Refusal(
    "E0680",
    "there is no instruction `{intrinsic}`",
    help="{known}",
)
APART = Refusal(
    "E0684",
    "`{step}` would take the nest of `{loop}` apart, which is one {intrinsic}: {why}",
    help="do this step before `tensorize({loop}, …)`",
)


def the_intrinsic(program: Program, name: str, focus: str) -> Intrinsic:
    """The instruction of that name, for a step or a question at a loop or a block; refused when there is none."""
    for i in program.intrinsics:
        if i.name == name:
            return i
    names = ", ".join(i.name for i in program.intrinsics)
    known = f"those known here are: {names}" if names else "import one: `use std.intrinsics.x86`"
    raise NO_INTRINSIC(program, focus, intrinsic=name, known=known)


def _units(program: Program) -> dict[str, tuple[tuple[For, ...], For, Intrinsic]]:
    """The outermost loops of tensorized nests by name, with the loops around them and their instructions."""
    if not program.intrinsics:
        return {}
    loops = ((around, s, intrinsic_of(program, s)) for around, s in walk(program.body) if isinstance(s, For))
    return {s.var: (around, s, i) for around, s, i in loops if i is not None}


def refuse_apart(step: str, before: Program, after: Program) -> None:
    """Refuse a step after which a tensorized nest is gone, or no longer does what its instruction does."""
    units = _units(after)
    for var, (_, old, intrinsic) in _units(before).items():
        around, new, own = units.get(var, ((), old, None))
        if own is None or own.name != intrinsic.name:
            raise APART(before, var, step=step, loop=var, intrinsic=intrinsic.name, why="it would be gone")
        found = None if new == old else match_nest(around, new, own)
        if isinstance(found, Mismatch):
            raise APART(before, var, step=step, loop=var, intrinsic=intrinsic.name, why=found.why)
        for x in loops_below(new):
            if x.kind is not LoopKind.TENSORIZED:
                why = f"`{x.var}` would stand in it, and is no loop of it"
                raise APART(before, var, step=step, loop=var, intrinsic=intrinsic.name, why=why)
