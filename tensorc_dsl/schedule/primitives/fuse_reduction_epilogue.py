"""`fuse_reduction_epilogue`: start a reduction from the value that a later block adds to its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from tensorc_dsl.ir.expr import Binary, Expr, Load, Logic, Var, loads, substitute
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, For, IterKind, Program, Store, replace_stmt
from tensorc_dsl.ir.reductions import Fold, FoldOp, combine, identity
from tensorc_dsl.proof.sets.reductions import NotApart, parts_of
from tensorc_dsl.proof.sets.regions import full_domain
from tensorc_dsl.schedule.motion import (
    fills,
    is_param,
    own_buffer,
    positions,
    read_indices,
    readers,
    shared_loops,
    writers,
)
from tensorc_dsl.schedule.nests import NO_BLOCK, map_accesses, remove_block, replace_buffer, the_block
from tensorc_dsl.schedule.step import BlockRef, Rewrite, primitive, refusal


@refusal("E0655", "cannot fuse `{epilogue}` into `{block}`: {reason}", at="epilogue")
def NOT_FUSED(*focus: str, epilogue: str, block: str, reason: str, repair: str) -> None: ...
@refusal(
    "E0656",
    "fused, `{epilogue}` would be applied in each step of `{block}`: `{value}` is not `{buffer} {op} …`",
    help="keep it apart; `reverse_compute_at` moves it to where `{block}` completes an element",
    at="epilogue",
)
def NO_START(*focus: str, epilogue: str, block: str, value: str, buffer: str, op: str) -> None: ...


@primitive(NO_BLOCK, NOT_FUSED, NO_START)
def fuse_reduction_epilogue(program: Program, block: BlockRef, epilogue: BlockRef) -> Rewrite[None]:
    """`block` reduces into the buffer of `epilogue`, starting from the value that the epilogue combines the result with.

    for i, k: C[i] = 0 then C[i] += e   ->   for i, k: D[i] = b[i] then D[i] += e
    for i: D[i] = C[i] + b[i]

    The epilogue must combine each element of the result, once, with a value by the operation of the reduction itself: the
    bias of a sum, the lower bound of a maximum. Any other operation would have to run after the last step.
    In TVM: `fuse_reduction_epilogue`.  Cases: tests/primitives/fuse_reduction_epilogue.md
    """
    around, b = the_block(program, block)
    behind, e = the_block(program, epilogue)

    def refuse(reason: str, repair: str) -> Exception:
        return NOT_FUSED(program, e.name, b.name, block=b.name, epilogue=e.name, reason=reason, repair=repair)

    fold, start = _fold(b, refuse)
    old = b.body[0].buffer
    _check_result(program, around, b, e, refuse)
    if common := shared_loops(around, behind):
        raise refuse(f"both stand in loop `{common[-1]}`", "fuse before moving one of them")
    names = _check_epilogue(program, behind, e, old, refuse)
    rest = _others(e.body[0].value, fold.op, old)
    if rest is None:
        facts = {"value": format_expr(e.body[0].value), "buffer": old, "op": fold.op}
        raise NO_START(program, e.name, b.name, block=b.name, epilogue=e.name, **facts)
    order = positions(program)
    for buffer in sorted({x.buffer for x in loads(rest)}):
        for loops, w in writers(program, buffer):
            if order[w.name] > order[b.name] or shared_loops(loops, around):
                raise refuse(f"`{w.name}` has not finished `{buffer}` before `{b.name}`", f"move `{w.name}` first")
    for _, reader in readers(program, e.body[0].buffer):
        if order[reader.name] < order[e.name]:
            reason = f"`{reader.name}` reads `{e.body[0].buffer}` before it is written"
            raise refuse(reason, f"move `{reader.name}` first")

    def element(indices: tuple[Expr, ...]) -> dict[str, Expr]:
        return dict(zip(names, indices, strict=True))

    def placed(indices: tuple[Expr, ...]) -> tuple[str, tuple[Expr, ...]]:
        store = e.body[0]
        return store.buffer, tuple(substitute(i, element(indices)) for i in store.indices)

    given = substitute(rest, element(b.body[0].indices))
    first = given if start == identity(fold.op, program.buffer(old).dtype) else combine(fold.op, start, given)
    fused = map_accesses(replace(b, init=()), old, placed)
    fused = replace(fused, init=(Store(*placed(b.init[0].indices), first),))
    result = remove_block(replace_stmt(program, b.name, (fused,)), e.name)
    return Rewrite(replace_buffer(result, old, ()), None)


_Refuse = Callable[[str, str], Exception]


def _fold(b: Block, refuse: _Refuse) -> tuple[Fold, Expr]:
    """The operation of the reduction, and its initial value."""
    repair = "fuse into a reduction by `sum`, `prod`, `min`, `max`, `any` or `all`"
    try:
        kinds = [part.kind for part in parts_of(b)]
    except NotApart:
        kinds = []
    if not b.is_reduction or len(kinds) != 1 or not isinstance(kinds[0], Fold):
        raise refuse(f"`{b.name}` does not reduce by one operation", repair)
    if [(s.buffer, s.indices) for s in b.init] != [(s.buffer, s.indices) for s in b.body]:
        raise refuse(f"`{b.name}` has no initialisation", "fuse first, then `decompose_reduction`")
    return kinds[0], b.init[0].value


def _check_result(program: Program, around: Sequence[For], b: Block, e: Block, refuse: _Refuse) -> None:
    """Refuse unless the reduction fills a buffer that only the epilogue uses."""
    name = b.body[0].buffer
    repair = "only what the epilogue alone reads can go"
    if is_param(program, name):
        raise refuse(f"`{b.name}` writes the output `{name}`", repair)
    users = {x.name for _, x in (*writers(program, name), *readers(program, name))} - {b.name, e.name}
    if users:
        raise refuse(f"`{min(users)}` uses `{name}` too", repair)
    if not read_indices(e, name):
        raise refuse(f"it does not read `{name}`", f"name the block that reads `{name}`")
    if not fills(around, b, program.buffer(name)):
        raise refuse(f"`{b.name}` may not write every element of `{name}`", f"fuse before moving `{b.name}`")


def _check_epilogue(program: Program, around: Sequence[For], e: Block, result: str, refuse: _Refuse) -> tuple[str, ...]:
    """The iterators at which the epilogue reads the result. Refused unless it maps each element to one of its own."""
    repair = f"fuse a block that makes one element of each element of `{result}`"
    name = own_buffer(e)
    if name is None or len(e.body) != 1 or e.init or any(it.kind is not IterKind.SPATIAL for it in e.iters):
        raise refuse("it needs more than one step for an element", repair)
    if read_indices(e, name) or [x.name for _, x in writers(program, name)] != [e.name]:
        raise refuse(f"`{name}` is made of more than the result", repair)
    found = read_indices(e, result)
    names = [i.name for i in found[0] if isinstance(i, Var)]
    target = [i.name for i in e.body[0].indices if isinstance(i, Var)]
    every = sorted(it.name for it in e.iters)
    extents = {it.name: it.extent for it in e.iters}
    if len(found) != 1 or not sorted(names) == sorted(target) == every or len(e.body[0].indices) != len(target):
        raise refuse(f"it does not map the elements of `{result}` one to one", repair)
    if tuple(extents[n] for n in names) != program.buffer(result).shape or not full_domain(around, e):
        raise refuse(f"it does not run once for each element of `{result}`", repair)
    return tuple(names)


def _others(value: Expr, op: FoldOp, result: str) -> Expr | None:
    """The value that an expression combines the result with by `op`; None if it uses the result in any other way."""
    operands = _operands(value, op)
    rest = [x for x in operands if all(y.buffer != result for y in loads(x))]
    mine = [x for x in operands if isinstance(x, Load) and x.buffer == result]
    if len(mine) != 1 or len(rest) != len(operands) - 1 or not rest:
        return None
    return reduce(lambda x, y: combine(op, x, y), rest)


def _operands(e: Expr, op: FoldOp) -> list[Expr]:
    if isinstance(e, Binary | Logic) and e.op == op:
        return [*_operands(e.lhs, op), *_operands(e.rhs, op)]
    return [e]
