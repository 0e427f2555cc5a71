"""Questions a schedule asks of blocks, loops and the target: `b.loops`, `l.extent`, `target.vector_bits`.

A query is a function of the program as it stands; each is one entry of a table, so adding one is adding one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from tensorc_dsl.interp.values import ProgramRef, Value
from tensorc_dsl.ir.expr import Load, Var, constant, free_vars, loads
from tensorc_dsl.ir.program import Block, IterKind, LoopKind, Program, blocks, find_block, find_loop, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.primitive import BlockRef, BufferRef, LoopRef


def _own_reads(b: Block) -> tuple[Load, ...]:
    """What the block reads, without the running value of its own reduction."""
    written = {s.buffer for s in b.body}
    found = [x for s in b.body for x in (*loads(s.value), *(y for i in s.indices for y in loads(i)))]
    return tuple(x for x in found if not (b.is_reduction and x.buffer in written))


def _loops(p: Program, b: BlockRef) -> Value:
    return tuple(LoopRef(loop.var) for loop in find_block(p, b.name)[0])


def loop_kind(p: Program, loop: LoopRef) -> str:
    """ "S" when the blocks below use the loop for spatial iterators only, "R" for reductions only, else "M"."""
    kinds = {
        "S" if it.kind is IterKind.SPATIAL else "R"
        for _, s in walk(find_loop(p, loop.name)[1].body)
        if isinstance(s, Block)
        for it in s.iters
        if loop.name in free_vars(it.binding)
    }
    return kinds.pop() if len(kinds) == 1 else ("S" if not kinds else "M")


def _loops_of_kind(kind: str) -> Callable[[Program, BlockRef], Value]:
    def query(p: Program, b: BlockRef) -> Value:
        around, block = find_block(p, b.name)
        spatial = frozenset[str]().union(*(free_vars(it.binding) for it in block.iters if it.kind is IterKind.SPATIAL))
        other = frozenset[str]().union(
            *(free_vars(it.binding) for it in block.iters if it.kind is not IterKind.SPATIAL)
        )
        keep = spatial - other if kind == "S" else other
        return tuple(LoopRef(loop.var) for loop in around if loop.var in keep)

    return query


def _has_reuse(p: Program, b: BlockRef) -> Value:
    """A reduction that reads some buffer without one of its spatial iterators reads each element more than once."""
    block = find_block(p, b.name)[1]
    if not block.is_reduction:
        return False
    spatial = {it.name for it in block.iters if it.kind is IterKind.SPATIAL}
    return any(spatial - frozenset[str]().union(*map(free_vars, x.indices)) for x in _own_reads(block))


def _producers(p: Program, b: BlockRef) -> Value:
    read = {x.buffer for x in _own_reads(find_block(p, b.name)[1])}
    return tuple(BlockRef(o.name) for o in blocks(p) if o.name != b.name and any(s.buffer in read for s in o.body))


def _consumers(p: Program, b: BlockRef) -> Value:
    written = {s.buffer for s in find_block(p, b.name)[1].body}
    return tuple(
        BlockRef(o.name) for o in blocks(p) if o.name != b.name and any(x.buffer in written for x in _own_reads(o))
    )


def _is_output(p: Program, b: BlockRef) -> Value:
    params = {x.name for x in p.params}
    return any(s.buffer in params for s in find_block(p, b.name)[1].body)


def _is_injective(p: Program, b: BlockRef) -> Value:
    """No reduction, and the subscripts of its one store are its iterators, each once."""
    block = find_block(p, b.name)[1]
    if any(it.kind is not IterKind.SPATIAL for it in block.iters) or len(block.body) != 1:
        return False
    subscripts = [i.name for i in block.body[0].indices if isinstance(i, Var)]
    return len(subscripts) == len(block.body[0].indices) and len(set(subscripts)) == len(subscripts)


def _buffers(names: list[str]) -> Value:
    return tuple(BufferRef(n) for n in dict.fromkeys(names))


BLOCK_QUERIES: dict[str, Callable[[Program, BlockRef], Value]] = {
    "loops": _loops,
    "spatial_loops": _loops_of_kind("S"),
    "reduce_loops": _loops_of_kind("R"),
    "name": lambda _p, b: b.name,
    "reads": lambda p, b: _buffers([x.buffer for x in _own_reads(find_block(p, b.name)[1])]),
    "writes": lambda p, b: _buffers([s.buffer for s in find_block(p, b.name)[1].body]),
    "producers": _producers,
    "consumers": _consumers,
    "has_reuse": _has_reuse,
    "is_output": _is_output,
    "is_reduction": lambda p, b: find_block(p, b.name)[1].is_reduction,
    "is_injective": _is_injective,
}

LOOP_QUERIES: dict[str, Callable[[Program, LoopRef], Value]] = {
    "extent": lambda p, l: constant(find_loop(p, l.name)[1].extent),
    "kind": loop_kind,
    "name": lambda _p, l: l.name,
    "is_serial": lambda p, l: find_loop(p, l.name)[1].kind is LoopKind.SERIAL,
}

BUFFER_QUERIES: dict[str, Callable[[Program, BufferRef], Value]] = {
    "name": lambda _p, b: b.name,
    "shape": lambda p, b: tuple(constant(e) for e in p.buffer(b.name).shape),
    "bytes_per_element": lambda p, b: p.buffer(b.name).dtype.bytes,
    "is_param": lambda p, b: any(x.name == b.name for x in p.params),
}

PROGRAM_QUERIES: dict[str, Callable[[Program, ProgramRef], Value]] = {
    "root": lambda _p, r: r,
    "blocks": lambda p, _r: tuple(BlockRef(b.name) for b in blocks(p)),
}

TARGET_FACTS: tuple[str, ...] = (*(f.name for f in fields(Target)), "vector_registers")
