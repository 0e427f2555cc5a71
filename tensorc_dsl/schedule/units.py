"""Instructions by name, and the proof after every step that tensorized nests still compute what their instructions do.

The loops of such a nest have a kind, so steps over loops refuse them as they refuse parallel ones. Other steps can change
the inside of a nest: a block moves in, a producer is inlined, an operand gets another layout. They
are accepted while the proof of `tensorize` holds. The same applies to the agreement of instructions on the places of elements
in a fragment.
"""

from __future__ import annotations

from tensorc_dsl.ir.memo import by_identity
from tensorc_dsl.ir.program import For, Intrinsic, LoopKind, Program, intrinsic_of, walk
from tensorc_dsl.proof.sets.fragments import Unit, disagreement, misplaced
from tensorc_dsl.proof.sets.instructions import Match, match_nest
from tensorc_dsl.schedule.refusal import ScheduleRefusal, refusal
from tensorc_dsl.schedule.substitution import loops_below


@refusal(
    "E0680",
    "there is no instruction `{intrinsic}`",
    help="{known}",
)
def NO_INTRINSIC(*focus: str, intrinsic: str, known: str) -> None: ...
@refusal(
    "E0684",
    "`{step}` would take the nest of `{loop}` apart, which is one {intrinsic}: {why}",
    help="do this step before `tensorize({loop}, …)`",
)
def APART(*focus: str, step: str, loop: str, intrinsic: str, why: str) -> None: ...


def the_intrinsic(program: Program, name: str, *focus: str) -> Intrinsic:
    """The instruction of that name, for a step or query (at a loop or block). Raises ScheduleRefusal if there is none."""
    for i in program.intrinsics:
        if i.name == name:
            return i
    names = ", ".join(i.name for i in program.intrinsics)
    known = f"those known here are: {names}" if names else "import one: `use std.intrinsics.x86`"
    raise NO_INTRINSIC(program, *focus, intrinsic=name, known=known)


@refusal(
    "E0682",
    "after `{step}`, {one} and {other} do not agree on the fragment `{buffer}`: {why}",
    help="let both take the same dimension of `{buffer}` for their rows: of loops that run equally often, the outer one "
    "plays the first axis of the instruction",
)
def FRAGMENT(*focus: str, step: str, one: str, other: str, buffer: str, why: str) -> None: ...


Nest = tuple[tuple[For, ...], For, Intrinsic]
"""The loops around a tensorized nest, its outermost loop, and the instruction that it is."""


@by_identity(8)
def _nests(program: Program) -> dict[str, Nest]:
    """The tensorized nests by the names of their outermost loops."""
    if not program.intrinsics:
        return {}
    loops = ((around, s, intrinsic_of(program, s)) for around, s in walk(program.body) if isinstance(s, For))
    return {s.var: (around, s, i) for around, s, i in loops if i is not None}


def refuse_apart(step: str, before: Program, after: Program) -> None:
    """Refuse a step after which a tensorized nest is missing, or no longer computes what its instruction does, or
    instructions disagree on the places of elements in a fragment."""
    nests, olds = _nests(after), _nests(before)
    for var, (_, old, intrinsic) in olds.items():
        around, new, own = nests.get(var, ((), old, None))

        def apart(why: str, var: str = var, name: str = intrinsic.name) -> ScheduleRefusal:
            return APART(before, var, step=step, loop=var, intrinsic=name, why=why)

        if own is None or own.name != intrinsic.name:
            raise apart("it would be gone")
        if new == old and before.buffers == after.buffers:
            continue
        found = match_nest(around, new, own)
        clash = misplaced(after, own, found) if isinstance(found, Match) else found
        if clash is not None:
            raise apart(clash.why)
        for x in loops_below(new):
            if x.kind is not LoopKind.TENSORIZED:
                raise apart(f"`{x.var}` would stand in it, and is no loop of it")
    _refuse_disagreement(step, olds, after, nests)


def _refuse_disagreement(step: str, olds: dict[str, Nest], after: Program, nests: dict[str, Nest]) -> None:
    """Refuse a step after which instructions that share a fragment disagree on the places of its elements."""
    sharing = [n for n in nests.values() if n[2].layouts]
    if [_standing(n) for n in sharing] == [_standing(n) for n in olds.values() if n[2].layouts]:
        return
    found = ((n, match_nest(*n)) for n in sharing)
    problem = disagreement(after, [Unit(n[0], n[1].var, n[2], m) for n, m in found if isinstance(m, Match)])
    if problem is not None:
        one, other = (u.intrinsic.name for u in (problem.one, problem.other))
        focus = dict.fromkeys((problem.one.loop, problem.other.loop, problem.buffer))
        raise FRAGMENT(after, *focus, step=step, one=one, other=other, buffer=problem.buffer, why=problem.why)


def _standing(nest: Nest) -> object:
    """The parts of a nest that the places of elements depend on."""
    around, loop, _ = nest
    return tuple((x.var, x.extent) for x in around), loop
