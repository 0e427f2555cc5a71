"""`compute_inline`: compute the elements of a block in the blocks that read them."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.expr import Expr, Load, Var, rewrite_expr, substitute
from tensorc_dsl.ir.program import Block, IterKind, Program, Store, map_store, replace_stmt
from tensorc_dsl.proof.sets.accesses import home
from tensorc_dsl.proof.sets.regions import full_domain
from tensorc_dsl.proof.sets.simplify import iter_ranges, simplify
from tensorc_dsl.schedule.motion import (
    NO_CONSUMER,
    InsertionPoint,
    is_param,
    positions,
    read_indices,
    readers,
    same_version,
    unready_input,
    writers,
)
from tensorc_dsl.schedule.nests import NO_BLOCK, remove_block, replace_buffer, the_block
from tensorc_dsl.schedule.stale import refuse_long
from tensorc_dsl.schedule.step import BlockRef, Rewrite, primitive, refusal


@refusal(
    "E0371",
    "cannot inline `{block}`: {reason}",
    help="inline blocks that store each element of an intermediate buffer once, as `B[i, j] = exp(A[i, j])` does",
    at="block",
)
def NOT_INLINABLE(*focus: str, block: str, reason: str) -> None: ...
@refusal(
    "E0372",
    "cannot inline `{block}`: it does not run for all values of its iterators",
    help="inline it before the step that moved it or added conditions to it",
    at="block",
)
def PARTIAL(*focus: str, block: str) -> None: ...
@refusal(
    "E0373",
    "cannot inline `{block}` into `{reader}`: `{buffer}` may differ there, `{writer}` writes it",
    help="leave `{block}` where it is, or inline it before the step that moved `{writer}`",
    at="block",
)
def CHANGED(*focus: str, block: str, reader: str, buffer: str, writer: str) -> None: ...


@primitive(NO_BLOCK, NOT_INLINABLE, NO_CONSUMER, PARTIAL, CHANGED)
def compute_inline(program: Program, block: BlockRef) -> Rewrite[None]:
    """Every block that reads the buffer computes its elements instead; the block and its buffer are removed.

    for i: B[i] = A[i] + 1   ->   for i: C[i] = exp(A[i] + 1)
    for i: C[i] = exp(B[i])

    In TVM: `compute_inline`; in Halide: the default for a stage; in Exo: `inline_assign`.
    Cases: tests/primitives/compute_inline.md
    """
    around, b = the_block(program, block)
    store, names = _definition(program, b)
    consumers = readers(program, store.buffer, but=b.name)
    if not consumers:
        raise NO_CONSUMER(program, b.name, block=b.name, buffer=store.buffer)
    if not full_domain(around, b):
        raise PARTIAL(program, b.name, block=b.name)
    order = positions(program)
    kept = {x.var for x in home(program, program.buffer(store.buffer)) or ()}

    result = program
    for loops, reader in consumers:

        def same_contents(shared: tuple[str, ...], buffer: str, reader: str = reader.name) -> bool:
            # A buffer with one copy keeps its contents until they are written again; with one per iteration, the element must
            # be used in the same iteration.
            if set(shared) <= kept or program.buffer(buffer).scope != "global":
                return set(shared) <= kept
            return same_version(program, store.buffer, [reader], shared, buffer)

        def before(shared: tuple[str, ...], buffer: str) -> bool:
            return not shared or same_contents(shared, buffer)

        place = InsertionPoint(loops, order[reader.name])
        if found := unready_input(program, b.name, place, same_contents, before=before):
            facts = {"block": b.name, "reader": reader.name, "buffer": found.buffer, "writer": found.writer}
            raise CHANGED(program, b.name, reader.name, **facts)
        inlined = _inlined(reader, store, names)
        refuse_long("compute_inline", program, (inlined,))
        result = replace_stmt(result, reader.name, (inlined,))
    return Rewrite(replace_buffer(remove_block(result, b.name), store.buffer, ()), None)


def _definition(program: Program, b: Block) -> tuple[Store, tuple[str, ...]]:
    """The only store of a block, and the iterator that each of its subscripts is."""
    store = b.body[0]

    def refuse(reason: str) -> Exception:
        return NOT_INLINABLE(program, b.name, block=b.name, reason=reason)

    if is_param(program, store.buffer):
        raise refuse(f"it writes the output `{store.buffer}`")
    if len(b.body) != 1 or b.init or any(it.kind is not IterKind.SPATIAL for it in b.iters):
        raise refuse("it needs more than one step for an element")
    if read_indices(b, store.buffer):
        raise refuse(f"it reads `{store.buffer}` itself")
    others = [w.name for _, w in writers(program, store.buffer) if w.name != b.name]
    if others:
        raise refuse(f"`{others[0]}` writes `{store.buffer}` too")
    names = tuple(i.name for i in store.indices if isinstance(i, Var))
    if len(names) != len(store.indices) or len(set(names)) != len(names) or {it.name for it in b.iters} != set(names):
        raise refuse("its subscripts are not its iterators, each once")
    return store, names


def _inlined(reader: Block, store: Store, names: tuple[str, ...]) -> Block:
    ranges = iter_ranges(reader.iters)
    known: dict[tuple[Expr, ...], Expr] = {}  # a reader that other stages were inlined into reads an element many times

    def element(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer != store.buffer:
            return e
        if e.indices not in known:
            value = substitute(store.value, dict(zip(names, e.indices, strict=True)))
            known[e.indices] = simplify(value, ranges)
        return known[e.indices]

    def rewritten(s: Store) -> Store:
        return map_store(s, lambda e: rewrite_expr(e, element))

    return replace(reader, init=tuple(map(rewritten, reader.init)), body=tuple(map(rewritten, reader.body)))
