"""Random steps of every primitive, with arguments that are right in kind, whether or not they apply."""

from __future__ import annotations

import random

from tensorc_dsl.ir.expr import Var, add, constant, floordiv, floormod, index, mul
from tensorc_dsl.ir.program import Block, Buffer, For, Program, blocks, walk
from tensorc_dsl.schedule.primitive import BlockRef, BufferRef, IndexMap, LoopRef, apply
from tensorc_dsl.schedule.refusal import ScheduleRefusal

Step = tuple[str, tuple[object, ...], dict[str, object]]


def random_step(p: Program, rng: random.Random) -> Step:
    """A step on the loops."""
    found = list(walk(p.body))
    loops = [s for _, s in found if isinstance(s, For)]
    paths = [around for around, s in found if isinstance(s, Block) and around]
    loop = rng.choice(loops)
    ref = LoopRef(loop.var)
    path = rng.choice(paths)
    match rng.choice(
        ["split", "split", "split", "fuse", "reorder", "reorder", "reorder", "kind", "decompose", "rfactor"]
    ):
        case "split":
            extent = constant(loop.extent) or 1
            divisors = [n for n in range(1, extent + 1) if extent % n == 0]
            factors: list[int | None] = [rng.choice([*divisors, 2, 3]) for _ in range(rng.choice([1, 1, 2]))]
            factors.insert(rng.randrange(len(factors) + 1), None)
            return "split", (ref, tuple(factors)), {"partial": rng.random() < 0.6}
        case "fuse":
            at = rng.randrange(len(path))
            return "fuse", tuple(LoopRef(x.var) for x in path[at : at + rng.choice([2, 2, 3])]), {}
        case "reorder":
            some = rng.sample(path, rng.randint(1, len(path)))
            return "reorder", tuple(LoopRef(x.var) for x in some), {}
        case "kind":
            return rng.choice(["parallel", "vectorize", "unroll"]), (ref,), {}
        case "rfactor":
            around, block = rng.choice([(a, s) for a, s in found if isinstance(s, Block) and a])
            return "rfactor", (BlockRef(block.name), LoopRef(rng.choice(around).var), rng.randint(-2, 2)), {}
        case _:
            around, block = rng.choice([(a, s) for a, s in found if isinstance(s, Block)])
            target = rng.choice(around).var if around else loop.var
            return "decompose_reduction", (BlockRef(block.name), LoopRef(target)), {}


def storage_step(p: Program, rng: random.Random) -> Step:
    """A step that moves or caches blocks, changes a layout, or marks an innermost loop."""
    block = BlockRef(rng.choice(blocks(p)).name)
    loops = [s for _, s in walk(p.body) if isinstance(s, For)]
    innermost = [s for s in loops if not any(isinstance(x, For) for x in s.body)]
    kinds = ["cache_write", "cache_read", "at", "inline", "vectorize", "unroll", "parallel"]
    match rng.choice([*kinds, "layout"] if p.buffers else kinds):
        case "cache_write":
            return "cache_write", (block,), {}
        case "cache_read":
            return "cache_read", (block, BufferRef(rng.choice([*p.params, *p.buffers]).name)), {}
        case "at":
            return rng.choice(["compute_at", "reverse_compute_at"]), (block, LoopRef(rng.choice(loops).var)), {}
        case "inline":
            return "compute_inline", (block,), {}
        case "layout":
            buffer = rng.choice(p.buffers)
            return "transform_layout", (BufferRef(buffer.name), random_layout(buffer, rng)), {}
        case "parallel":
            return "parallel", (LoopRef(rng.choice(loops[:2]).var),), {}
        case kind:
            return kind, (LoopRef(rng.choice(innermost).var),), {}


def random_layout(b: Buffer, rng: random.Random) -> IndexMap:
    """Another order of the dimensions, one of which may be cut into blocks or joined to another."""
    names = [f"d{n}" for n in range(len(b.shape))]
    place = [Var(n) for n in names]
    result = [*place]
    rng.shuffle(result)
    if result and rng.random() < 0.5:
        cut, width = rng.choice(place), index(rng.choice([2, 3, 4]))
        at = result.index(cut)
        out = [*result[:at], floordiv(cut, width), *result[at + 1 :], floormod(cut, width)]
        return IndexMap(tuple(names), tuple(out))
    if len(result) > 1 and rng.random() < 0.3:
        *rest, a, c = result
        return IndexMap(tuple(names), (*rest, add(mul(a, index(64)), c)))
    return IndexMap(tuple(names), tuple(result))


def random_schedule(p: Program, rng: random.Random, steps: int) -> tuple[Program, list[str]]:
    """The program after `steps` tries, and the steps that were accepted."""
    history: list[str] = []
    for _ in range(steps):
        if not any(isinstance(s, For) for s in p.body):
            break
        step, args, kwargs = (storage_step if rng.random() < 0.5 else random_step)(p, rng)
        try:
            p = apply(p, step, *args, **kwargs).program
        except ScheduleRefusal:
            continue
        history.append(f"{step}{args}{kwargs}")
    return p, history
