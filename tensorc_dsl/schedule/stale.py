"""Keeps the declarations of earlier steps about loops true: a later step that breaks one is refused.

A pipeline is proved for the current statements of its loop. A later step may add or remove one, or change its accesses, so
the proof is repeated whenever the loop has changed. The same holds for the roles of its statements, and
for tensorized nests (`units`). A loop bound to an axis must agree with all others of its kernel, so each step checks the
whole program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorc_dsl.ir.annotations import axis_problem, pipeline, roles
from tensorc_dsl.ir.dtypes import I64, limits
from tensorc_dsl.ir.expr import Expr, constant, too_large
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import (
    ALIGN,
    OFFSET,
    Block,
    Buffer,
    For,
    Intrinsic,
    LoopKind,
    Program,
    blocks,
    intrinsic_of,
    is_in_order,
    walk,
)
from tensorc_dsl.proof.sets.accesses import home, is_private, private_loops, touched, written
from tensorc_dsl.proof.sets.dependence import overtakes, overwritten
from tensorc_dsl.proof.sets.instructions import Match, Unit, disagreement, match_nest, misplaced
from tensorc_dsl.proof.sets.simplify import bounds
from tensorc_dsl.schedule.accumulation import UNBEGUN, refuse_unbegun
from tensorc_dsl.schedule.kinds import MEET, NOT_SCATTERED, refuse_races, refuse_unscattered
from tensorc_dsl.schedule.nests import loops_below
from tensorc_dsl.schedule.step import ScheduleRefusal, refusal

# Keeps what buffers hold that are private to an iteration: a step that moves their uses together must not make them new
# more often.


@refusal(
    "E0688",
    "after `{step}` all uses of `{buffer}` are inside `{loop}`, and an iteration may read what an earlier one left in it",
    help='give `{buffer}` the scope "global" first: `set_scope({buffer}, "global")`',
)
def EMPTIED(*focus: str, step: str, buffer: str, loop: str) -> None: ...


def refuse_emptied(step: str, before: Program, after: Program) -> None:
    """Refuse a step after which a buffer is new in each iteration of a loop that was inside of its home, unless each
    iteration reads only what it has written. Steps that make a buffer private, or a new one, have proved it.
    """
    scopes = {b.name: b.scope for b in before.buffers if b.scope != "global"}
    if not scopes:
        return
    old, new = private_loops(before), private_loops(after)
    known = {s.var for _, s in walk(before.body) if isinstance(s, For)}
    for buffer in after.buffers:
        name = buffer.name
        around = home(after, buffer)
        if around is None or scopes.get(name) != buffer.scope or not (new[name] - old[name]) & known:
            continue
        inside = around[-1].var
        if not is_private(after, name, inside):
            raise EMPTIED(before, name, inside, step=step, buffer=name, loop=inside)


# Instructions by name, and the proof after every step that tensorized nests still compute what their instructions do.
#
# The loops of such a nest have a kind, so steps over loops refuse them as they refuse parallel ones. Other steps can change
# the inside of a nest: a block moves in, a producer is inlined, an operand gets another layout. They are accepted while the
# proof of `tensorize` holds. The same applies to the agreement of instructions on the places of elements in a fragment.


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


# Refuses a step after which a loop, a buffer or an expression is too large.
#
# Kernels count iterations and bytes in 64 bits, and functions over expressions have limits of their own.


@refusal(
    "E0687",
    "after `{step}` {what}, and kernels count to {most}",
    help="take smaller numbers",
)
def UNCOUNTED(*focus: str, step: str, what: str, most: int) -> None: ...


@refusal(
    "E0692",
    "after `{step}` an expression of `{block}` would be {found}",
    help="leave a stage in a buffer, with its block where it is or moved by `compute_at`; then others read its elements",
)
def TOO_LONG(*focus: str, step: str, block: str, found: str) -> None: ...


MOST = limits(I64)[1] // 2
"""Half of what 64 bits count: sums of two such numbers, as conditions compare, are in range."""


def refuse_uncounted(step: str, before: Program, after: Program) -> None:
    """Refuse a loop that is too long, or a buffer that is too large. Indices of kernels have 64 bits."""
    for _, s in walk(after.body):
        if isinstance(s, For) and _most(s.extent) > MOST:
            raise UNCOUNTED(before, step=step, what=f"`{s.var}` has {_most(s.extent)} iterations", most=MOST)
    known = {id(b) for b in before.buffers}
    for b in after.buffers:
        if id(b) not in known and (size := pitched(b, [_most(n) for n in b.shape]) * b.dtype.bytes) > MOST:
            raise UNCOUNTED(before, step=step, what=f"`{b.name}` has {size} bytes", most=MOST)


def refuse_long(step: str, before: Program, made: Iterable[Block]) -> None:
    """Refuse blocks with an expression that is too large, before anything else is asked about them."""
    for b in made:
        if found := _too_large(b):
            focus = [x.name for x in blocks(before) if x.name == b.name]
            raise TOO_LONG(before, *focus, step=step, block=b.name, found=found)


@by_identity(512)
def _too_large(b: Block) -> str:
    """What is too large about the first such expression of a block; empty if none is."""
    stored = (e for s in (*b.init, *b.body) for e in (*s.indices, s.value))
    return next(filter(None, map(too_large, (*stored, *b.where, *(it.binding for it in b.iters)))), "")


def _most(e: Expr) -> int:
    """The greatest value of an extent; 0 if none is known."""
    n = constant(e)
    return (bounds(e, {})[1] or 0) if n is None else n


def pitched(b: Buffer, sizes: Sequence[int]) -> int:
    """The elements of a box of these sizes, with the space between its rows from `storage_align`."""
    notes, inner = dict(b.annotations), 1
    for d, n in reversed(list(enumerate(sizes))):
        factor, offset = (int(notes.get(f"{key}.{d}", least)) for key, least in ((ALIGN, 1), (OFFSET, 0)))
        inner = n * (-(-(inner - offset) // factor) * factor + offset)
    return inner


@refusal(
    "E0390",
    "after `{step}` the pipeline of `{loop}` would not hold: {why}",
    help="make a loop a pipeline when its statements are final",
)
def NOT_KEPT(*focus: str, step: str, loop: str, why: object) -> None: ...
@refusal(
    "E0612",
    'after `{step}` the loop `{loop}` could not be bound to "{axis}": {reason}',
    help="bind loops when they are where they shall be",
)
def MISBOUND(*focus: str, step: str, loop: str, axis: str, reason: str) -> None: ...
@refusal(
    "E0611",
    'after `{step}` all uses of `{buffer}` are inside `{loop}`, bound to "{axis}": its threads share what each would fill',
    help='fill `{buffer}` outside of `{loop}`, in a loop of its own, or give it the scope "local"',
)
def SHARED(*focus: str, step: str, buffer: str, loop: str, axis: str) -> None: ...
@refusal(
    "E0696",
    "after `{step}` `{written}` cannot update `{read}`: {why}",
    help="keep the order in which elements are read and then written, or `{read}` and `{written}` apart: leave `updates` out",
)
def OVERWRITES(*focus: str, step: str, written: str, read: str, why: object) -> None: ...


@refusal(
    "E0346",
    "`{step}` would change the order of rounding, which is kept: {reason}",
    help="leave out this step, or `keep_order`: then results may differ in their last bits",
)
def OTHER_ORDER(*focus: str, step: str, reason: str) -> None: ...


def refuse_other_order(step: str, before: Program, after: Program) -> None:
    """Refuse a step that does not keep the bits of a program that keeps its order."""
    if not is_in_order(before):
        return
    # The validator loads isl and NumPy, which a check of a file does without.
    from tensorc_dsl.proof.equivalence.bits import changed_order

    if (reason := changed_order(before, after)) is not None:
        raise OTHER_ORDER(before, step=step, reason=reason)


STALE = (
    NOT_KEPT, MISBOUND, SHARED, MEET, EMPTIED, APART, FRAGMENT, NOT_SCATTERED, UNCOUNTED, TOO_LONG, UNBEGUN, OVERWRITES,
    OTHER_ORDER,
)  # fmt: skip
"""The refusals of a step that breaks a declaration of an earlier one; any step can raise them."""


def refuse_stale(step: str, before: Program, after: Program) -> None:
    """Refuse a step after which a bound loop is not valid, a pipeline is not legal, a tensorized nest is not its
    instruction, iterations that run at once share an element, data do not choose the iteration of a scattered loop, or
    something is not written where a reduction has no steps.

    It also refuses a shared buffer that each thread would fill for itself: one copy serves all threads of a block; a private
    buffer that would lose what it holds; what 64 bits do not count; expressions that are too large; and an output that would
    overwrite elements of an input that are read later, if it did not before; and another order of rounding, if the program
    keeps its own.
    """
    refuse_long(step, before, blocks(after))
    refuse_uncounted(step, before, after)
    refuse_apart(step, before, after)
    refuse_races(step, before, after)
    refuse_emptied(step, before, after)
    refuse_unscattered(step, before, after)
    refuse_unbegun(step, before, after)
    refuse_other_order(step, before, after)
    for p in after.params:
        if p.updates in ("", p.name) or (why := overwritten(after, p.name, p.updates)) is None:
            continue
        if overwritten(before, p.name, p.updates) is None:
            raise OVERWRITES(before, why.reader, why.writer, step=step, written=p.name, read=p.updates, why=why)
    if problem := axis_problem(after):
        focus = [x for x in (problem.loop, problem.other) if x is not None]
        facts = {"loop": problem.loop, "axis": problem.axis, "reason": problem.reason}
        raise MISBOUND(before, *focus, step=step, **facts)
    for buffer in after.buffers:
        if buffer.scope.split(".")[0] != "shared":
            continue
        for x in home(after, buffer) or ():
            if x.axis is not None and x.axis.counts_threads:
                raise SHARED(before, x.var, buffer.name, step=step, buffer=buffer.name, loop=x.var, axis=x.axis)
    pipelines = [s for _, s in walk(after.body) if isinstance(s, For) and s.kind is LoopKind.PIPELINED]
    if not pipelines:
        return
    known = {s.var: s for _, s in walk(before.body) if isinstance(s, For)}
    moved = private_loops(before) != private_loops(after)  # a private buffer may have become shared
    for loop in pipelines:
        if known.get(loop.var) == loop and not moved:
            continue
        declared = pipeline(loop)
        if declared is None:
            raise NOT_KEPT(
                before,
                loop.var,
                step=step,
                loop=loop.var,
                why=f"its stages are not those of its {len(loop.body)} statements",
            )
        dependence = overtakes(after, loop.var, *declared)
        if dependence is not None:
            raise NOT_KEPT(before, loop.var, step=step, loop=loop.var, why=dependence)
        if passing := private_between(after, loop, roles(loop)):
            why = "`{}` is private to a thread, and passes from {} to {}".format(*passing)
            raise NOT_KEPT(before, loop.var, step=step, loop=loop.var, why=why)


def private_between(program: Program, loop: For, roles: Sequence[str]) -> tuple[str, str, str] | None:
    """A buffer that is private to a thread, a role that writes it, and another role that accesses it; None if none is."""
    for buffer in program.buffers:
        if buffer.scope != "local":
            continue
        users = [
            (role, buffer.name in written((s,)))
            for s, role in zip(loop.body, roles, strict=False)
            if any(buffer.name in touched(b) for _, b in walk((s,)) if isinstance(b, Block))
        ]
        for a, writes in users:
            for b, _ in users:
                if writes and a != b:
                    return buffer.name, a, b
    return None
