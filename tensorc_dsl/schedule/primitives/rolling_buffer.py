"""`rolling_buffer`: keep elements for the next iteration of a loop, in a circular buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Var, add, constant, free_vars, index, sub, substitute
from tensorc_dsl.ir.program import (
    Block,
    Buffer,
    For,
    LoopKind,
    Program,
    Stmt,
    blocks,
    blocks_in,
    fresh,
    replace_stmt,
    used_names,
    walk,
)
from tensorc_dsl.proof.sets.accesses import follow_writes, is_private, touched, written
from tensorc_dsl.proof.sets.linear_forms import Context, Linear, difference, linear, to_expr
from tensorc_dsl.proof.sets.sets import extremes
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges
from tensorc_dsl.schedule.motion import Nest, writers
from tensorc_dsl.schedule.nests import (
    NO_BLOCK,
    NO_LOOP,
    computes_the_same,
    dimension_modulo,
    guarded,
    replace_buffer,
    replace_variables,
    the_block,
    the_loop,
)
from tensorc_dsl.schedule.primitives.compute_at import NOT_PURE, OUTPUT, pure_buffer
from tensorc_dsl.schedule.primitives.decompose_reduction import NOT_AROUND
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal("E0632", "the iterations of `{loop}` do not move a window over `{buffer}`: {reason}", at="loop")
def NO_WINDOW(*focus: str, loop: str, buffer: str, reason: str, repair: str) -> None: ...
@refusal(
    "E0633",
    "what an iteration of `{loop}` computes of `{buffer}` cannot serve the next: {reason}",
    help="roll the buffer before the step that made it so, or let each iteration compute its own part",
    at="loop",
)
def NOT_KEPT(*focus: str, loop: str, buffer: str, reason: str) -> None: ...


@frozen
class _Window:
    """Dimension `axis` of the buffer: an iteration of the loop computes `size` elements, which the loop `inner` counts. They
    begin `moved` elements after those of the iteration before, which is at most `step`.
    """

    axis: int
    inner: For
    size: int
    step: int
    moved: Expr
    first: int
    """How many elements of the first window may not be new to the first iteration."""


@primitive(NO_BLOCK, NO_LOOP, NOT_AROUND, OUTPUT, NOT_PURE, NO_WINDOW, NOT_KEPT)
def rolling_buffer(program: Program, block: BlockRef, loop: LoopRef) -> Rewrite[BlockRef]:
    """An iteration of `loop` computes only elements that the one before did not; the buffer has the size of the window.

    for t in 4:                                  for h in 1: P[h % 3] = …
        for h in 3: P[t*2 + h] = …         ->    for t in 4:
        for r in 3: Y[t] += P[t*2 + r]               for h in 2: P[(t*2 + h + 1) % 3] = …
                                                     for r in 3: Y[t] += P[(t*2 + r) % 3]

    Subscripts wrap around. A window may move by fractions, such as `t / 2`: a condition skips what the iteration before has
    computed. A new block before the loop, the result, computes the part of the first window that no iteration
    adds. The loop must run in order from then on. Of a chain of stages in one loop the first is rolled first; a later one is
    rolled if the result is proved to compute the same.
    In TVM: `rolling_buffer`; in Halide: `store_at` outside of `compute_at`, with `fold_storage`.
    Cases: tests/primitives/rolling_buffer.md
    """
    return _rolled(program, block, loop)


@lru_cache(maxsize=16)
def _rolled(program: Program, block: BlockRef, loop: LoopRef) -> Rewrite[BlockRef]:
    """As `rolling_buffer`: a query and the step after it ask alike, and the answer takes a proof."""
    around, b = the_block(program, block)
    at = the_loop(program, loop)[1]
    names = [x.var for x in around]
    if loop.name not in names:
        facts = {"block": b.name, "loops": ", ".join(names) or "none"}
        raise NOT_AROUND(program, loop.name, b.name, loop=loop.name, **facts)
    buffer = pure_buffer(program, b)
    depth = names.index(loop.name)
    window = _window(program, (around, b), depth, buffer)
    child = around[depth + 1] if depth + 1 < len(around) else b
    rolled = _check_kept(program, (around, b), depth, buffer, child)

    used = used_names(program)
    first, name = _first(child, around[:depth], at, window, used)
    rest = _later(program, around, window)
    here = the_loop(rest, loop)[1]
    whole = replace_stmt(rest, at.var, (first, here))
    private = replace_buffer(whole, buffer.name, (replace(buffer, scope="local"),))
    for x in blocks(private):
        if buffer.name in touched(x) and not follow_writes(private, buffer.name, x.name):
            reason = f"`{x.name}` may read elements that were left out before"
            raise NOT_KEPT(program, x.name, at.var, loop=at.var, buffer=buffer.name, reason=reason)
    result = dimension_modulo(whole, buffer, window.axis, window.size)
    if rolled and not computes_the_same(program, result):
        reason = f"`{rolled[0]}` may hold other elements by then"
        raise NOT_KEPT(program, at.var, b.name, loop=at.var, buffer=buffer.name, reason=reason)
    return Rewrite(result, BlockRef(name))


def _window(program: Program, nest: Nest, depth: int, buffer: Buffer) -> _Window:
    around, b = nest
    at, inside = around[depth], {x.var: x for x in around[depth + 1 :]}

    def refuse(reason: str, repair: str = "") -> Exception:
        repair = repair or f"compute `{b.name}` at a loop whose iterations read overlapping parts, with `compute_at`"
        return NO_WINDOW(program, at.var, b.name, loop=at.var, buffer=buffer.name, reason=reason, repair=repair)

    moving = [it for it in b.iters if at.var in free_vars(it.binding)]
    axes = [d for d, i in enumerate(b.body[0].indices) if moving and i == Var(moving[0].name)]
    if not moving:
        reason = f"each of them computes the same elements, as `{b.name}` does not depend on it"
        raise refuse(reason, f"compute `{b.name}` outside of `{at.var}`, once")
    if len(moving) != 1 or len(axes) != 1:
        raise refuse(f"not just one subscript of `{b.name}` depends on it")
    context = Context(extent_ranges(around))
    form = linear(moving[0].binding, context)
    own = [v for v in form.terms if isinstance(v, str) and v in inside]
    if len(own) != 1 or form.terms[own[0]] != 1:
        raise refuse(f"`{moving[0].name}` is not where it begins plus one loop of the window")
    inner = inside[own[0]]
    low = form.minus(Linear({inner.var: 1}, 0))
    if not inside.keys().isdisjoint(free_vars(to_expr(low))):
        raise refuse(f"loops of the window decide where it begins, in `{moving[0].name}`")
    before = substitute(to_expr(low), {at.var: sub(Var(at.var), index(1))})
    moved = to_expr(difference(to_expr(low), before, context))
    least, step = extremes(moved, {**context.ranges, at.var: (1, _last(at))}) or (-1, 0)
    if least < 0:
        turned = "if the windows move back, turn the loop round with `transform_block_layout`, before `compute_at`"
        raise refuse("a window is not proved to begin where the last one did, or later", turned)
    size, whole = constant(inner.extent), constant(buffer.shape[axes[0]])
    if any(inner.var in free_vars(it.binding) for it in b.iters if it is not moving[0]):
        raise refuse(f"`{inner.var}` counts more than the window")
    if size is None or size <= step or step < 1:
        raise refuse("its windows do not overlap", "leave it: no iteration computes what another one did")
    if whole is not None and size >= whole:
        raise refuse("one window is the whole", f"compute `{b.name}` outside of `{at.var}`, once")
    least_new = (extremes(moved, {**context.ranges, at.var: (0, 0)}) or (0, 0))[0]
    return _Window(axes[0], inner, size, step, moved, size - min(max(least_new, 0), step))


def _last(loop: For) -> int | None:
    """The last iteration of a loop, if it is known to have at least two."""
    most = bounds(loop.extent, {})[1]
    return most - 1 if most is not None and most > 1 else None


def _check_kept(program: Program, nest: Nest, depth: int, buffer: Buffer, child: Stmt) -> list[str]:
    """Refuse unless the loop runs in order, and each element has the same value in every iteration that computes it.

    Returns the inputs that change below the loop since they were rolled over it: their elements are the same, too, as long as
    they are kept, which is yet to be proved.
    """
    around, b = nest
    at = around[depth]

    def refuse(reason: str, *focus: str) -> Exception:
        return NOT_KEPT(program, at.var, *focus, loop=at.var, buffer=buffer.name, reason=reason)

    if at.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
        raise refuse(f"the loop is {at.kind}")
    if (bounds(at.extent, {})[0] or 0) < 1:
        raise refuse("the loop may not run at all")
    if any(isinstance(s, Block) and s.name != b.name for _, s in walk((child,))):
        raise refuse(f"`{b.name}` shares its loops with other blocks")
    if any(x.kind is LoopKind.VECTORIZED for x in around):
        raise refuse(f"`{b.name}` is vectorized already")
    below = {x.name for x in blocks_in(at.body)}
    for x in blocks(program):
        if buffer.name in touched(x) and x.name not in below:
            raise refuse(f"`{x.name}` reads it outside of the loop", x.name)
    changed = sorted((touched(b) - {buffer.name}) & written(at.body))
    for other in changed:
        if all(w.name in below for _, w in writers(program, other)):
            raise refuse(f"`{b.name}` reads `{other}`, which changes below the loop and is not rolled over it", b.name)
    local = replace_buffer(program, buffer.name, (replace(buffer, scope="local"),))
    if not is_private(local, buffer.name, at.var):
        raise refuse("an iteration reads more of it than it computes")
    return changed


def _first(child: Stmt, outer: tuple[For, ...], at: For, window: _Window, used: set[str]) -> tuple[Stmt, str]:
    """The statements of the first iteration, without the part that each iteration adds; and the name of its block."""
    made: list[str] = []

    def go(s: Stmt, values: Mapping[str, Expr], loops: tuple[For, ...]) -> Stmt:
        if isinstance(s, Block):
            made.append(fresh(f"{s.name}_first", used))
            (new,) = replace_variables((s,), values, loops)
            assert isinstance(new, Block)  # a block stays one
            return replace(new, name=made[0])
        extent = index(window.first) if s.var == window.inner.var else s.extent
        loop = replace(s, var=fresh(f"{s.var}_first", used), extent=extent)
        return replace(loop, body=(go(s.body[0], {**values, s.var: Var(loop.var)}, (*loops, loop)),))

    return go(child, {at.var: ZERO}, outer), made[0]


def _later(program: Program, around: tuple[For, ...], window: _Window) -> Program:
    """The program in which each iteration computes only the elements of its window that the one before did not have."""
    inner = replace(window.inner, extent=index(window.step))
    outer = around[: around.index(window.inner)]
    new = Compare(">=", Var(window.inner.var), sub(index(window.size), window.moved))
    shifted = add(Var(inner.var), index(window.size - window.step))
    guards = tuple(guarded(s, (new,)) for s in window.inner.body)
    body = replace_variables(guards, {inner.var: shifted}, (*outer, inner))
    return replace_stmt(program, inner.var, (replace(inner, body=body),))
