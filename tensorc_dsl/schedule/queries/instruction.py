"""Questions about an instruction, `dot.fits(b)`, and about a block and an instruction, `b.tensor_mappings(dot)`."""

from __future__ import annotations

from tensorc_dsl.ir.expr import constant, loads
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.warp import is_tma, is_tma_store
from tensorc_dsl.proof.sets.instructions import mappings as all_mappings
from tensorc_dsl.proof.sets.instructions import uneven_row
from tensorc_dsl.schedule.nests import the_block
from tensorc_dsl.schedule.primitive import accepts
from tensorc_dsl.schedule.query import query
from tensorc_dsl.schedule.refs import BlockRef, IntrinsicRef
from tensorc_dsl.schedule.refusal import refusal
from tensorc_dsl.schedule.stale import the_intrinsic


@refusal(
    "E0685",
    "`{mapping}` does not map `{block}` onto {intrinsic}",
    help="{known}",
    at="mapping",
)
def NO_MAPPING(*focus: str, mapping: str, block: str, intrinsic: str, known: str) -> None: ...
@refusal(
    "E0686",
    "in `{mapping}` several iterators play `{axis}`",
    help="make them one iterator first, by `transform_block_layout({block}, …)`",
    at="mapping",
)
def SEVERAL(*focus: str, mapping: str, axis: str, block: str) -> None: ...


@query
def tensorizable(program: Program, block: BlockRef, intrinsic: str) -> bool:
    """Whether some of its iterators can play the axes of an instruction, perhaps after padding."""
    b = the_block(program, block)[1]
    return any(True for _ in all_mappings(b, the_intrinsic(program, intrinsic, b.name)))


@query
def tensor_mappings(program: Program, block: BlockRef, intrinsic: str) -> tuple[str, ...]:
    """All mappings of its iterators onto the axes of an instruction, as `"i=vn*vh*vw, j=vco, k=vci"`.

    An iterator can play an axis of its kind that occurs in the same operands. Several iterators play one axis together, as
    one index that counts them in their order; iterators in no mapping stay loops around the instruction. If factors can
    trade places, there are mappings for both ways. The first mapping leaves the fewest loops outside.
    """
    b = the_block(program, block)[1]
    return tuple(map(str, all_mappings(b, the_intrinsic(program, intrinsic, b.name))))


@query
def tensor_tile(program: Program, block: BlockRef, intrinsic: str, mapping: str) -> tuple[int, ...]:
    """The number of values of each of its iterators that one instruction takes under a mapping, 1 without an axis.

    It is padded to multiples of these numbers, and its loops are split by them. Refused if several play one axis.
    """
    b = the_block(program, block)[1]
    named = the_intrinsic(program, intrinsic, b.name)
    found = {str(m): m for m in all_mappings(b, named)}
    if mapping not in found:
        known = (
            "those that do are: " + "; ".join(found) if found else f"none does: ask `{b.name}.tensorizable(…)` first"
        )
        raise NO_MAPPING(program, b.name, mapping=mapping, block=b.name, intrinsic=named.name, known=known)
    sizes: dict[str, int] = {}
    for axis, iters in found[mapping].axes:
        player, *others = iters
        if others:
            raise SEVERAL(program, b.name, mapping=mapping, axis=axis.name, block=b.name)
        sizes[player] = axis.extent
    return tuple(sizes.get(it.name, 1) for it in b.iters)


@query
def runs(program: Program, intrinsic: IntrinsicRef, target: Target) -> bool:
    """Whether the target has it: there is code for targets of its kind, and it has all that this code requires."""
    lowerings = the_intrinsic(program, intrinsic).lowerings
    return any(x.fits(target.kind, target.feature_names) for x in lowerings)


@query
def mappings(program: Program, intrinsic: IntrinsicRef, block: BlockRef) -> tuple[str, ...]:
    """Those of `b.tensor_mappings(…)` that can be used at once: one iterator plays each axis, and padding the block to
    whole instructions is possible.
    """
    found = (m for m in tensor_mappings(program, block, intrinsic) if "*" not in m)
    return tuple(m for m in found if accepts(program, "pad_einsum", block, tensor_tile(program, block, intrinsic, m)))


@query
def players(program: Program, intrinsic: IntrinsicRef, block: BlockRef) -> tuple[tuple[str, ...], ...]:
    """For each axis with several values the iterators of a block that play it together, in their order, where the fewest
    loops stay outside: `[["n", "h", "w"], ["co"], ["kh", "kw", "ci"]]`. Empty if the block does not have the form of it.
    """
    first = next(all_mappings(the_block(program, block)[1], the_intrinsic(program, intrinsic)), None)
    return () if first is None else tuple(iters for _, iters in first.axes)


@query
def fits(program: Program, intrinsic: IntrinsicRef, target: Target, block: BlockRef) -> bool:
    """Whether the target has it and it can do the innermost tile of a block, perhaps after padding. Boxes are of arrays whose
    rows are whole units of 16 bytes apart."""
    named, body = the_intrinsic(program, intrinsic), the_block(program, block)[1].body
    arrays = {x for s in body for x in ([s.buffer] if is_tma_store(named) else [y.buffer for y in loads(s.value)])}
    if is_tma(named) and any(uneven_row(program.buffer(x)) is not None for x in arrays):
        return False
    return runs(program, intrinsic, target) and bool(mappings(program, intrinsic, block))


@query
def shapes(program: Program, intrinsic: IntrinsicRef) -> tuple[tuple[int, ...], ...]:
    """The shape of each operand, in the order of its `desc`."""
    operands = the_intrinsic(program, intrinsic).operands
    return tuple(tuple(constant(n) or 0 for n in x.shape) for x in operands)


@query
def scopes(program: Program, intrinsic: IntrinsicRef) -> tuple[str, ...]:
    """Where each operand lies, in the order of its `desc`: the name of a layout, or "global"."""
    return tuple(x.scope for x in the_intrinsic(program, intrinsic).operands)
