"""`merge`: join two loops that stand beside each other."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Var, sub
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import For, Program, blocks_in, replace_stmt
from tensorc_dsl.proof.sets.accesses import home, is_private
from tensorc_dsl.proof.sets.dependence import runs_ahead
from tensorc_dsl.proof.sets.sets import NotAffine, affine_only, feasible
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify
from tensorc_dsl.schedule.nests import NO_LOOP, NOT_SERIAL, guarded, replace_variables, require_serial, the_loop
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, ScheduleRefusal, primitive, refusal


@refusal(
    "E0602",
    "`{second}` does not follow directly on `{first}`",
    help="merge two loops of which the second stands right behind the first, inside the same loop",
)
def NOT_BESIDE(*focus: str, second: str, first: str) -> None: ...
@refusal("E0603", "`{first}` has {one} iterations, `{second}` has {other}")
def UNEQUAL(*focus: str, first: str, one: str, second: str, other: str, repair: str) -> None: ...
@refusal("E0604", "an iteration of `{second}` needs later ones of `{first}`: {dependence}")
def OVERTAKES(*focus: str, second: str, first: str, dependence: object, repair: str) -> None: ...
@refusal(
    "E0606",
    "each iteration of the merged loop would have a `{buffer}` of its own, and may read what another one wrote",
    help='keep the loops apart, or give `{buffer}` the scope "global"',
)
def NOT_PRIVATE(*focus: str, buffer: str) -> None: ...


@primitive(NO_LOOP, NOT_SERIAL, NOT_BESIDE, UNEQUAL, OVERTAKES, NOT_PRIVATE)
def merge(program: Program, first: LoopRef, second: LoopRef, partial: bool = False) -> Rewrite[LoopRef]:
    """The first loop also runs the iterations of the second one, each after its own iteration of the same number.

    for i in e: s;  for j in e: t  ->  for i in e: (s; t[j := i])

    Both have the same number of iterations. With `partial` one may have fewer, and its blocks have a condition then.
    No iteration of the second loop may access an element that a later one of the first writes, nor write one that a later
    one of the first accesses.
    In TVM: `merge`; in Exo: `fuse`; in Halide: `compute_with`.  Cases: tests/primitives/merge.md
    """
    around, one = the_loop(program, first)
    other = the_loop(program, second)[1]
    body = around[-1].body if around else program.body
    at = body.index(one)
    if body[at + 1 : at + 2] != (other,):
        raise NOT_BESIDE(program, one.var, other.var, first=one.var, second=other.var)
    for loop in (one, other):
        require_serial(program, loop, "merge")
    whole, mine, theirs = one, one.body, other.body
    if simplify(sub(one.extent, other.extent), extent_ranges(around)) != ZERO:
        first_fewer = _at_most(one.extent, other.extent, around)
        if not partial or not (first_fewer or _at_most(other.extent, one.extent, around)):
            sizes = format_expr(one.extent), format_expr(other.extent)
            facts = {"first": one.var, "second": other.var, "one": sizes[0], "other": sizes[1]}
            known = first_fewer or _at_most(other.extent, one.extent, around)
            raise UNEQUAL(
                program, one.var, other.var, **facts, repair=_guarded(program, first, second) if known else _CUT
            )
        if first_fewer:
            whole = replace(one, extent=other.extent)
            mine = tuple(guarded(s, (Compare("<", Var(one.var), one.extent),)) for s in mine)
        else:
            theirs = tuple(guarded(s, (Compare("<", Var(other.var), other.extent),)) for s in theirs)
    moved = replace_variables(theirs, {other.var: Var(one.var)}, (*around, whole))
    annotations = tuple(sorted({**dict(other.annotations), **dict(one.annotations)}.items()))
    merged = replace(whole, body=(*mine, *moved), annotations=annotations)
    out = replace_stmt(replace_stmt(program, other.var, ()), one.var, (merged,))
    dependence = runs_ahead(out, one.var, [b.name for b in blocks_in(one.body)])
    if dependence is not None:
        focus = (one.var, other.var, dependence.first, dependence.second)
        facts = {"first": one.var, "second": other.var, "repair": _instead(program, dependence.first, other.var)}
        raise OVERTAKES(program, *focus, dependence=dependence, **facts)
    for buffer in out.buffers:
        outside = all(x.var not in (one.var, other.var) for x in home(program, buffer) or ())
        inside = any(x.var == one.var for x in home(out, buffer) or ())
        if outside and inside and not is_private(out, buffer.name, one.var):
            raise NOT_PRIVATE(program, one.var, other.var, buffer.name, buffer=buffer.name)
    return Rewrite(out, LoopRef(one.var))


def _guarded(program: Program, first: LoopRef, second: LoopRef) -> str:
    """What to do with loops of which one is proved to be the shorter one."""
    try:
        merge(program, first, second, partial=True)
    except ScheduleRefusal as e:
        return e.help
    return f"`merge({first.name}, {second.name}, partial=true)` to guard the shorter one"


def _instead(program: Program, block: str, second: str) -> str:
    """What to do where an iteration of the second loop needs later ones of a block of the first."""
    try:
        apply(program, "compute_at", BlockRef(block), LoopRef(second))
    except ScheduleRefusal:
        return "keep the loops apart"
    return f"keep the loops apart, or `compute_at({block}, {second})`, which runs again what is needed twice"


_CUT = "cut the longer one with `loop_partition` first"


def _at_most(a: Expr, b: Expr, around: tuple[For, ...]) -> bool:
    """Whether one number of iterations is proved to be at most another one."""
    try:
        return not feasible({x.var: x.extent for x in around}, affine_only([Compare("<", b, a)]))
    except NotAffine:
        return False
