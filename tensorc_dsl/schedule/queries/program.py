"""Queries about the program, the resources of its kernels, its parts that are like a pattern, target and instructions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from inspect import Signature
from operator import attrgetter
from typing import get_type_hints

from tensorc_dsl.ir import program as ir
from tensorc_dsl.ir.expr import Expr, constant, loads
from tensorc_dsl.ir.identity import by_first
from tensorc_dsl.ir.program import Axis, Buffer, For, Program, Stmt, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.warp import is_tma, is_tma_store
from tensorc_dsl.proof.sets.accesses import accesses, home, touched_in
from tensorc_dsl.proof.sets.dependence import versions
from tensorc_dsl.proof.sets.instructions import mappings as all_mappings
from tensorc_dsl.proof.sets.instructions import uneven_row
from tensorc_dsl.proof.sets.regions import inner_ranges, open_limits, required_region
from tensorc_dsl.proof.sets.simplify import extent_ranges
from tensorc_dsl.schedule.nests import the_block
from tensorc_dsl.schedule.patterns import first, found, name_of
from tensorc_dsl.schedule.primitive import accepts
from tensorc_dsl.schedule.query import Query, declare, query
from tensorc_dsl.schedule.stale import pitched, the_intrinsic
from tensorc_dsl.schedule.step import BlockPattern, BlockRef, BufferRef, IntrinsicRef, LoopPattern, LoopRef, refusal

# Queries about the program as a whole: `p.blocks`.


@query
def root(program: Program) -> Program:
    """The program itself, for steps that may take a block, a loop or the whole program."""
    return program


@query
def name(program: Program) -> str:
    """The name of the task."""
    return program.name


@query
def blocks(program: Program) -> tuple[BlockRef, ...]:
    """All blocks, in the order of the text."""
    return tuple(BlockRef(b.name) for b in ir.blocks(program))


@query
def inputs(program: Program) -> tuple[BufferRef, ...]:
    """The arguments that are only read."""
    return tuple(BufferRef(b.name) for b in program.inputs)


@query
def outputs(program: Program) -> tuple[BufferRef, ...]:
    """The arguments that are written."""
    return tuple(BufferRef(b.name) for b in program.outputs)


@refusal(
    "E0399",
    "how much of `{buffer}` a block of threads needs is open: `{block}` is in the same kernel",
    help="give `{buffer}` a size, or move its uses together below loops of known extents",
)
def OPEN_BUFFER(*focus: str, buffer: str, block: str) -> None: ...


_WARP = 32
"""The number of lanes in a warp."""

_WORD = 4
"""The number of bytes in a register."""


@query
def threads(program: Program, block: BlockRef) -> int:
    """The number of threads in a block of its kernel: the product of the axes that count threads. 1 if none is bound."""
    return _threads(x for _, x in walk((_kernel(program, block),)) if isinstance(x, For))


@query
def shared_bytes(program: Program, block: BlockRef) -> int:
    """The bytes that all "shared" buffers of its kernel take for a block of threads.

    The space between rows counts, and a buffer in a pipeline counts once for each stage from the first that accesses it to
    the last. Refused if this is not a number.
    """
    found = _private(program, block, lambda scope: scope.split(".")[0] == "shared")
    return sum(elements * b.dtype.bytes for b, elements, _ in found)


@query
def registers(program: Program, block: BlockRef) -> int:
    """The number of registers of 32 bits that a block of threads needs for its "local" buffers and fragments.

    Only buffers count: a compiler needs more registers, for addresses and intermediate values. Refused if this is not
    a number.
    """
    found = _private(program, block, lambda scope: scope.split(".")[0] != "shared")
    return sum(-(-elements * b.dtype.bytes // _WORD) * _units(around) for b, elements, around in found)


def _kernel(program: Program, block: BlockRef) -> Stmt:
    around, b = the_block(program, block)
    return around[0] if around else b


def _threads(loops: Iterable[For]) -> int:
    """The threads that the loops count, in dimensions or as warps of 32 lanes, whether the lanes are bound or not."""
    sizes = {x.axis: constant(x.extent) or 1 for x in loops if x.axis is not None and x.axis.counts_threads}
    grouped = {a: n for a, n in sizes.items() if a.level != "thread"}
    if grouped:
        grouped[Axis.LANE] = _WARP
    return max(math.prod(grouped.values()), math.prod(n for a, n in sizes.items() if a.level == "thread"))


def _units(around: Iterable[For]) -> int:
    """The number of copies of a buffer in a block of threads, if the buffer is private to an iteration of these loops.

    A buffer that is private to a warp is distributed over its lanes.
    """
    return math.prod(constant(x.extent) or 1 for x in around if x.axis is not None and x.axis.counts_threads)


def _private(
    program: Program, block: BlockRef, wanted: Callable[[str], bool]
) -> list[tuple[Buffer, int, tuple[For, ...]]]:
    """The buffers of the kernel in wanted scopes, each with the elements of one copy and the loops it is private to."""
    kernel = _kernel(program, block)
    out: list[tuple[Buffer, int, tuple[For, ...]]] = []
    for b in program.buffers:
        if b.scope == "global" or not wanted(b.scope) or b.name not in touched_in(kernel):
            continue
        around = home(program, b) or ()
        sizes = _box(around[-1] if around else kernel, b.name, b.shape, tuple((x.var, x.extent) for x in around))
        if any(n is None for n in sizes):
            raise OPEN_BUFFER(program, block.name, b.name, buffer=b.name, block=block.name)
        out.append((b, pitched(b, [n or 0 for n in sizes]) * (versions(around[-1], b) if around else 1), around))
    return out


@by_first(512)
def _box(inner: Stmt, buffer: str, shape: tuple[Expr, ...], around: tuple[tuple[str, Expr], ...]) -> list[int | None]:
    """The sizes of the box of a buffer's elements for one iteration of the loops `around`, the last of which is `inner`; if
    there are none, in the whole statement. Cached, since rules query it often and steps change few buffers."""
    outer = tuple(For(v, n, ()) for v, n in around)
    stmts = inner.body if around and isinstance(inner, For) else (inner,)
    names = {v for v, _ in around}
    at = [(x.indices, inner_ranges(x.loops, names)) for x in accesses(outer, stmts, frozenset((buffer,)))]
    return [constant(n) for _, n in required_region(at, extent_ranges(outer), shape, open_limits(outer))]


@query
def find_loop(program: Program, pattern: LoopPattern) -> LoopRef:
    """The first loop in the program that is like a pattern, `for _ in 8 { … C += _ … }`; refused if there is none."""
    return LoopRef(first(program, program.body, pattern))


@query
def find_loops(program: Program, pattern: LoopPattern) -> tuple[LoopRef, ...]:
    """All loops in the program that are like a pattern, in the order of the text."""
    return tuple(LoopRef(name_of(s)) for s in found(program.body, pattern))


@query
def find_block(program: Program, pattern: BlockPattern) -> BlockRef:
    """The first block in the program that is like a pattern, `_ = exp(_)`; refused if there is none."""
    return BlockRef(first(program, program.body, pattern))


@query
def find_blocks(program: Program, pattern: BlockPattern) -> tuple[BlockRef, ...]:
    """All blocks in the program that are like a pattern, in the order of the text."""
    return tuple(BlockRef(name_of(s)) for s in found(program.body, pattern))


# Facts of the target: `target.vector_bits`, `target.has("avx512vnni")`.


_FACTS = {
    "kind": 'The code generator, by the kind of the target: "llvm", "cuda", or that of an installed backend.',
    "cpu": 'The processor, by LLVM\'s name for it; for a GPU its architecture, "sm_80".',
    "vector_bits": "The width of a vector register in bits.",
    "vector_registers": "The number of vector registers.",
    "cores": "The number of threads that a kernel may use; for a GPU, the number of multiprocessors.",
    "l1": "The first-level data cache of a core, in bytes.",
    "l2": "The second-level cache of a core, in bytes.",
    "l3": "The third-level cache that the cores share, in bytes.",
    "shared_memory": "The memory that the threads of a GPU's block share, in bytes; 0 for other machines.",
    "threads": "The largest number of threads in a block of a GPU; 0 for other machines.",
    "registers": "The number of registers of 32 bits for the threads of a GPU's block together; 0 for other machines.",
}
"""The fields and properties of a target that can be asked for, with what they say."""

for _name, _doc in _FACTS.items():
    _type = get_type_hints(Target).get(_name) or get_type_hints(getattr(Target, _name).fget)["return"]
    declare(Query(_name, Target, attrgetter(_name), Signature(), _type, _doc))


@query
def features(target: Target) -> tuple[str, ...]:
    """The instruction sets that kernels may use, by LLVM's names, in alphabetical order."""
    return target.feature_names


@query
def has(target: Target, feature: str) -> bool:
    """Whether kernels may use an instruction set: `target.has("avx512vnni")`."""
    return feature in target.feature_names


# Questions about an instruction, `dot.fits(b)`, and about a block and an instruction, `b.tensor_mappings(dot)`.


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
    rows are whole units of 16 bytes apart; a copy of whole boxes may have conditions, as that of a range of tiles has."""
    named, b = the_intrinsic(program, intrinsic), the_block(program, block)[1]
    if not runs(program, intrinsic, target):
        return False
    if not is_tma(named):
        return bool(mappings(program, intrinsic, block))
    arrays = {x for s in b.body for x in ([s.buffer] if is_tma_store(named) else [y.buffer for y in loads(s.value)])}
    if any(uneven_row(program.buffer(x)) is not None for x in arrays):
        return False
    plain = (m for m in tensor_mappings(program, block, intrinsic) if "*" not in m)
    boxes = [tensor_tile(program, block, intrinsic, m) for m in plain]
    return any(
        all((constant(it.extent) or 1) % n == 0 for it, n in zip(b.iters, box, strict=True))
        or accepts(program, "pad_einsum", block, box)
        for box in boxes
    )


@query
def shapes(program: Program, intrinsic: IntrinsicRef) -> tuple[tuple[int, ...], ...]:
    """The shape of each operand, in the order of its `desc`."""
    operands = the_intrinsic(program, intrinsic).operands
    return tuple(tuple(constant(n) or 0 for n in x.shape) for x in operands)


@query
def scopes(program: Program, intrinsic: IntrinsicRef) -> tuple[str, ...]:
    """Where each operand lies, in the order of its `desc`: the name of a layout, or "global"."""
    return tuple(x.scope for x in the_intrinsic(program, intrinsic).operands)
