"""Hints for random arguments whose kind says too little: for a parameter by name, values that are likely to be accepted.

Wrong arguments stay possible: each choice is made among all values now and then.
"""

from __future__ import annotations

import typing
from collections.abc import Callable

from campaigns import random_loops as loops
from campaigns.random_site import NothingToName, Site, any_block, any_loop
from tensorc_dsl.ir.expr import Binary, Logic, Select, free_vars, loads
from tensorc_dsl.ir.program import Block, For, IterKind
from tensorc_dsl.ir.reductions import Fold, update_of
from tensorc_dsl.proof.sets.accesses import touched
from tensorc_dsl.proof.sets.running import not_passed
from tensorc_dsl.schedule.motion import is_scan, own_buffers, read_indices
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef

# --- blocks -----------------------------------------------------------------------------------------------------------


def _iterators(site: Site) -> tuple[str, ...]:
    nest = site.nest()
    names = [it.name for it in nest[1].iters] if nest else ["i"]
    return tuple(site.rng.sample(names, len(names)))


def _padding(site: Site) -> tuple[int, ...]:
    nest = site.nest()
    return tuple(site.rng.choice([1, 2, 3, 4]) for _ in nest[1].iters) if nest else (1,)


def _producers(site: Site) -> list[Block]:
    """The blocks whose result another one reads."""
    read = {x.buffer for b in site.blocks for s in b.body for x in loads(s.value) if x.buffer != s.buffer}
    return [b for b in site.blocks if b.body[0].buffer in read]


def _producer(site: Site) -> BlockRef:
    return BlockRef(site.mostly(_producers(site), site.blocks).name)


def _consumer(site: Site) -> BlockRef:
    """A block that reads what another one writes."""
    made = {b.body[0].buffer for b in site.blocks}
    return site.likely_block([b for b in site.blocks if (touched(b) - own_buffers(b)) & made])


def _readers(site: Site) -> list[Block]:
    """The blocks that read what the chosen one writes."""
    nest = site.nest()
    if nest is None:
        return []
    return [b for b in site.blocks if b is not nest[1] and read_indices(b, nest[1].body[0].buffer)]


def _place_of(site: Site) -> LoopRef:
    """A loop around a block that reads what the chosen block writes, or writes what it reads."""
    nest = site.nest()
    if nest is None:
        raise NothingToName
    block = nest[1]
    return site.mostly_loop(
        [x for around, b in site.nests if b is not block and touched(b) & touched(block) for x in around]
    )


def _place_behind(site: Site) -> LoopRef:
    """A loop around a block that writes what the chosen block reads."""
    nest = site.nest()
    if nest is None:
        raise NothingToName
    block = nest[1]
    made = [around for around, b in site.nests if b is not block and own_buffers(b) & touched(block)]
    return site.likely_loop([x for around in made for x in around])


def _matches(site: Site) -> BlockRef:
    """A sum that chooses the terms of each element."""
    chosen = [
        b
        for b in site.blocks
        if b.init and any(isinstance(s.value, Binary) and isinstance(s.value.rhs, Select) for s in b.body)
    ]
    return site.likely_block([b for b in chosen if b.is_reduction])


def _reduction(site: Site) -> BlockRef:
    return site.likely_block([b for b in site.blocks if b.is_reduction and b.init])


def _scan(site: Site) -> BlockRef:
    return site.likely_block([b for b in site.blocks if is_scan(b)])


def _passed(site: Site) -> BlockRef:
    """A scan whose value blocks can pass on, if there is one."""
    return site.likely_block([b for b in site.blocks if is_scan(b) and not_passed(site.program, b.name) is None])


def _extreme(site: Site) -> BlockRef:
    return site.likely_block([b for b in site.blocks if isinstance(f := update_of(b), Fold) and f.op in ("max", "min")])


def _counting_loops(site: Site) -> list[For]:
    """The loops that count a reduction of the chosen block, outermost first."""
    nest = site.nest()
    if nest is None:
        raise NothingToName
    around, block = nest
    counted = {n for it in block.iters if it.kind is IterKind.REDUCE for n in free_vars(it.binding)}
    return [x for x in around if x.var in counted]


def _counting(site: Site) -> LoopRef:
    return site.mostly_loop(_counting_loops(site))


def _before_counting(site: Site) -> LoopRef:
    """The outermost loop that counts a reduction of the chosen block, or one around it."""
    nest, counting = site.nest(), _counting_loops(site)
    around = nest[0] if nest else ()
    return site.mostly_loop(around[: around.index(counting[0]) + 1] if counting else around)


def _epilogues(site: Site, b: Block) -> list[Block]:
    """The blocks that combine the result of a reduction by its own operation with something else."""
    step, buffer = b.body[0].value, b.body[0].buffer
    if not isinstance(step, Binary | Logic):
        return []
    found = [(e, e.body[0].value) for e in site.blocks if e is not b and read_indices(e, buffer)]
    return [e for e, value in found if isinstance(value, Binary | Logic) and value.op == step.op]


def _with_epilogue(site: Site) -> BlockRef:
    return site.likely_block([b for b in site.blocks if b.is_reduction and b.init and _epilogues(site, b)])


def _epilogue(site: Site) -> BlockRef:
    nest = site.nest()
    return site.likely_block(_epilogues(site, nest[1]) if nest else [])


def _padded(site: Site) -> BlockRef:
    """A block that stores one thing here and another there."""
    return site.likely_block([b for b in site.blocks if isinstance(b.body[0].value, Select)])


def _windowed(site: Site) -> BlockRef:
    """A block that runs for the window of a loop around it: an iterator counts a loop further inside, too."""
    return site.likely_block([b for b in site.blocks if any(len(free_vars(it.binding)) > 1 for it in b.iters)])


def _window_loop(site: Site) -> LoopRef:
    nest = site.nest()
    moving = (
        {n for it in nest[1].iters if len(free_vars(it.binding)) > 1 for n in free_vars(it.binding)} if nest else ()
    )
    return site.likely_loop([x for x in nest[0] if x.var in moving] if nest else [])


def _read_by_windows(site: Site) -> BlockRef:
    """A block of whose result another one reads several elements that lie side by side."""

    def moves(reader: Block, buffer: str) -> bool:
        found = read_indices(reader, buffer)
        return len(found) > 1 or any(len(free_vars(i)) > 1 for indices in found for i in indices)

    own = [b for b in _producers(site) if any(moves(r, b.body[0].buffer) for r in site.blocks if r is not b)]
    return site.likely_block([b for b in own if all(x.name != b.body[0].buffer for x in site.program.params)])


def _outer_place(site: Site) -> LoopRef:
    """One of the two outermost loops around a reader of the chosen block."""
    readers = _readers(site)
    return site.likely_loop([x for around, b in site.nests if b in readers for x in around[:2]])


# --- buffers and annotations ------------------------------------------------------------------------------------------


def _intermediate(site: Site) -> BufferRef:
    every = [b.name for b in (*site.program.params, *site.program.buffers)]
    return BufferRef(site.likely([b.name for b in site.program.buffers], every))


def _updated(site: Site) -> list[Block]:
    """The blocks that update a buffer."""
    return [b for b in site.blocks if not b.init and any(read_indices(b, name) for name in own_buffers(b))]


def _own_buffer(site: Site) -> BufferRef:
    nest = site.nest()
    every = [b.name for b in (*site.program.params, *site.program.buffers)]
    return BufferRef(site.mostly(sorted(own_buffers(nest[1])) if nest else [], every))


def _noted(site: Site) -> LoopRef | BlockRef | None:
    """A loop or block with an annotation, or the program."""
    found: list[LoopRef | BlockRef | None] = [LoopRef(x.var) for x in site.loops if x.annotations]
    found += [BlockRef(b.name) for b in site.blocks if b.annotations]
    found += [None] if site.program.annotations else []
    return site.likely(found, [None, *(LoopRef(x.var) for x in site.loops)])


def _key(site: Site) -> str:
    target = site.chosen["target"]
    name = target.name if target is not None else ""
    notes = [x.annotations for x in site.loops if x.var == name] + [
        b.annotations for b in site.blocks if b.name == name
    ]
    here = notes[0] if notes else site.program.annotations if target is None else ()
    return site.mostly([k for k, _ in here], ["note"])


# --- all of them ------------------------------------------------------------------------------------------------------


HINTS: dict[str, Callable[[Site], typing.Any]] = {
    "add_unit_loop.target": lambda s: any_block(s) if s.rng.random() < 0.5 or not s.loops else any_loop(s),
    "asynchronous": lambda s: (s.chosen["stages"][0],),
    "atomic.block": lambda s: s.likely_block(_updated(s)),
    "cache_inplace.block": lambda s: s.likely_block(_updated(s)),
    "cache_inplace.buffer": _own_buffer,
    "compute_at.block": _producer,
    "compute_at.loop": lambda s: "root" if s.rng.random() < 0.1 else _place_of(s),
    "compute_inline.block": _producer,
    "decompose_padding.block": _padded,
    "decompose_padding.loop": any_loop,
    "decompose_reduction.block": _reduction,
    "decompose_reduction.loop": _before_counting,
    "distance": lambda s: s.rng.choice([1, 2, 3]),
    "double_scan.block": _scan,
    "epilogue": _epilogue,
    "factors": loops.factors,
    "fission.after": loops.followed_inside,
    "fission.loop": loops.many,
    "fold_scan.block": _scan,
    "look_back.block": _passed,
    "fold_scan.steps": lambda s: s.rng.choice([1, 2, 2, 3]),
    "fuse.loops": loops.neighbours,
    "fuse_reduction_epilogue.block": _with_epilogue,
    "intrinsic": loops.instruction,
    "merge.first": loops.followed,
    "merge.second": loops.follower,
    "move_behind.other": loops.beside,
    "move_behind.statement": loops.neighbour,
    "online_sums.block": _extreme,
    "online_sums.length": lambda s: s.rng.choice([1, 2, 2, 3, 4]),
    "order": loops.order,
    "pad_value": lambda s: s.rng.choice([0, 0, 1, 0.5, -1]),
    "padding": _padding,
    "partial": loops.partial,
    "persist.loop": loops.grid,
    "multiple": lambda s: 0 if s.chosen["points"] else s.rng.choice([2, 2, 3, 4, 4, 8]),
    "points": lambda s: () if s.rng.random() < 0.4 else loops.points(s),
    "registers": lambda s: tuple(s.rng.choice([24, 40, 232]) for _ in dict.fromkeys(s.chosen["roles"])),
    "reorder.loops": loops.some,
    "reorder_block_iters.order": _iterators,
    "reverse_compute_at.block": _consumer,
    "reverse_compute_at.loop": _place_behind,
    "reverse_compute_inline.block": _consumer,
    "rfactor.block": _reduction,
    "rfactor.axis": lambda s: s.rng.choice([0, 0, 1, -1, 2]),
    "rfactor.loop": _counting,
    "roles": loops.roles,
    "rolling_buffer.block": _windowed,
    "rolling_buffer.loop": _window_loop,
    "scatter.loop": loops.chosen,
    "set_scope.buffer": _intermediate,
    "skew.inner": loops.inside,
    "software_pipeline.loop": loops.many,
    "specialize.loop": loops.piped,
    "split_scan.block": _scan,
    "split_scan.length": lambda s: s.rng.choice([2, 2, 3, 4, 5]),
    "stages": loops.stages,
    "storage_align.axis": lambda s: s.rng.choice([0, 0, 1, -1, 2]),
    "storage_align.buffer": _intermediate,
    "storage_align.factor": lambda s: s.rng.choice([1, 2, 4, 4, 8, 0]),
    "storage_swizzle.axis": lambda s: s.rng.choice([0, 0, 1, -1, 2]),
    "storage_swizzle.buffer": _intermediate,
    "storage_swizzle.unit": lambda s: s.rng.choice([2, 4, 4, 8, 8, 16]),
    "tensorize.loop": loops.tile,
    "transform_layout.buffer": _intermediate,
    "unannotate.target": _noted,
    "unannotate.key": _key,
}
"""Ways to make an argument by `primitive.parameter`, or by `parameter` for all that call it so."""

LEADS: dict[str, tuple[tuple[str, ...], ...]] = {
    "atomic": (("decompose_reduction",),),
    "cache_inplace": (("decompose_reduction",),),
    "fission": (("compute_at",), ("merge",)),
    "look_back": (("reorder", "split_scan", "split", "merge", "merge"),),
    "persist": (("bind",),),
    "rolling_buffer": (("compute_at",),),
    "scatter": (("reorder", "decompose_reduction"),),
    "software_pipeline": (("compute_at",), ("read_at",)),
    "specialize": (("read_at", "software_pipeline"),),
    "storage_align": (("cache_read",), ("cache_write",)),
    "storage_swizzle": (("cache_read", "set_scope"), ("read_at",)),
    "tensorize": (
        ("decompose_reduction", "split"),
        ("decompose_reduction", "reorder", "split"),
        ("cache_read", "split"),
    ),
    "unannotate": (("annotate",),),
}
"""For primitives that rarely apply, sequences of steps after which they may."""

TOWARDS: dict[str, Callable[[Site], typing.Any]] = {
    "look_back<merge.first": loops.carried,
    "look_back<merge.partial": lambda _: True,
    "look_back<reorder.loops": loops.steps_last,
    "look_back<split.factors": lambda _: (None, 2),
    "look_back<split.loop": loops.after_carry,
    "look_back<split.partial": lambda _: True,
    "look_back<split_scan.length": lambda _: 2,
    "look_back<split_scan.sums": lambda _: False,
    "persist<bind.axis": lambda s: s.rng.choice(["block.x", "block.y", "block.z"]),
    "rolling_buffer<compute_at.block": _read_by_windows,
    "rolling_buffer<compute_at.loop": _outer_place,
    "scatter<decompose_reduction.block": _matches,
    "scatter<reorder.loops": loops.terms_first,
    "specialize<read_at.scope": lambda _: "shared",
    "tensorize<reorder.loops": loops.turned,
    "tensorize<split.factors": lambda s: (None, s.rng.choice([2, 2, 3])),
    "tensorize<split.loop": loops.shortest,
    "tensorize<split.partial": lambda s: s.rng.choice(["cut", False]),
}
"""Arguments of a step on the way to another primitive, by `primitive<step.parameter`; for the rest `HINTS` holds."""
