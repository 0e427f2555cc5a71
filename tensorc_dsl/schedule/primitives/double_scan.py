"""`double_scan`: compute all steps of a short scan at once, in as many rounds as their number can be halved."""

from __future__ import annotations

from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.expr import Compare, Expr, Load, Select, Var, constant, dtype_of, index, sub
from tensorc_dsl.ir.program import Buffer, Iter, IterKind, Program, Stmt, used_names
from tensorc_dsl.ir.reductions import combine, identity
from tensorc_dsl.schedule.accumulation import NO_RUNNING, OUT_OF_RANGE, the_running
from tensorc_dsl.schedule.nests import NO_BLOCK, NOT_SERIAL
from tensorc_dsl.schedule.step import BlockRef, Rewrite, primitive, refusal


@refusal("E0647", "the {steps} steps of `{block}` cannot be computed at once: {reason}", at="block")
def NOT_AT_ONCE(*focus: str, block: str, steps: str, reason: str, repair: str) -> None: ...


MOST = 1024
"""The steps that are computed at once at most: the work grows with their number's logarithm."""


@primitive(NO_BLOCK, NOT_SERIAL, NO_RUNNING, NOT_AT_ONCE, OUT_OF_RANGE)
def double_scan(program: Program, block: BlockRef, in_range: bool = False) -> Rewrite[tuple[BlockRef, ...]]:
    """`<block>_last1` is the term of each step, `<block>_last2` combines the last two terms, and so on; `block` combines all.

    for t in 4: Y[t] = Y[t-1] + e[t]   ->   for t in 4: Y_last1[t] = e[t]
                                            for t in 4: Y_last2[t] = Y_last1[t-1] + Y_last1[t]
                                            for t in 4: Y[t] = Y_last2[t-2] + Y_last2[t]

    The blocks `<block>_last…` are the result. Each computes its elements in any order, so the lanes of a warp can hold them.
    A step with fewer terms before it takes the value of the round before. (Hillis and Steele, 1986.) If steps scale the value
    before, `<block>_factor1` has their factors, `<block>_factor2` the products of the last two, and so on. Those of
    floats, and running products, have to stay in the range of their type, as for `split_scan`: proved, or said by `in_range`.
    If steps begin anew, `<block>_reset1`, `<block>_reset2`, and so on have whether one of the last steps does.
    In Halide and TVM nothing does this; in CUDA's libraries: `WarpScan` of CUB.  Cases: tests/primitives/double_scan.md
    """
    used = used_names(program)
    n = the_running(program, block, used)
    extent, name = n.steps.extent, n.block.name
    count = constant(extent)
    if count is None or not 2 <= count <= MOST:
        reason = (
            "their number is open" if count is None else "that is one" if count < 2 else f"that is more than {MOST}"
        )
        repair = "leave it as it is" if count is not None and count < 2 else "cut it with `split_scan` first"
        raise NOT_AT_ONCE(
            program, name, block=name, steps="open" if count is None else str(count), reason=reason, repair=repair
        )
    v = Var(n.scan.steps)
    own = (Iter(v.name, IterKind.SPATIAL, extent, v),)
    scope = program.buffer(n.element.buffer).scope
    value = n.added(Compare("<", v, index(1)), v)
    # The first step has no value before it.
    passed = [_from(v, 1, identity(x.op, dtype_of(x.factor)), x.factor) for x in n.scan.passed]
    made: list[Buffer] = []
    factors: list[Buffer] = []
    stmts: list[Stmt] = []

    def stored(round_: str, e: Expr) -> tuple[Buffer, Load]:
        made.append(n.stage(f"{name}_{round_}", scope, extent, dtype=dtype_of(e)))
        stmts.append(n.nest(made[-1], own, e))
        return made[-1], n.read(made[-1], v)

    back = 1
    while back < count:
        terms, here = stored(f"last{back}", value)
        before, all_of = n.read(terms, sub(v, index(back))), list[Load]()
        for k, x in enumerate(n.scan.passed):
            is_factor = x is n.scan.scale
            buffer, so_far = stored(f"{'factor' if is_factor else 'reset'}{back}", passed[k])
            factors += [buffer] if is_factor else []
            all_of.append(so_far)
            passed[k] = _from(v, back, so_far, combine(x.op, n.read(buffer, sub(v, index(back))), so_far))
        value = _from(v, back, here, n.after(before, here, all_of))
        back *= 2
    result = n.mapped(program, value, tuple(stmts))
    result = replace(result, buffers=(*result.buffers, *made))
    result = n.regrouped(program, result, "double_scan", factors or made, in_range=in_range)
    return Rewrite(result, tuple(BlockRef(x.name) for x in made))


def _from(v: Var, step: int, before: Expr, then: Expr) -> Expr:
    """One value before a step, and another one from it on."""
    return Select(Compare("<", v, index(step)), before, then)
