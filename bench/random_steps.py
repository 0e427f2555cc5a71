"""Random schedule steps: for every primitive, arguments that are right in kind, whether or not they apply.

What a primitive takes is read from its signature. A kind of argument (a loop, a number, a layout) has a way to be made; where
the kind says too little, as with a string, the parameter's name has one in `HINTS`. A primitive with a parameter for which
there is neither raises `NoGenerator`, so that a new one cannot be left out.
"""

from __future__ import annotations

import inspect
import random
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tensorc_dsl.affine.accesses import touched
from tensorc_dsl.ir.expr import Expr, Var, add, constant, floordiv, floormod, free_vars, index, loads, mul
from tensorc_dsl.ir.program import Block, For, IterKind, LoopKind, Program, walk
from tensorc_dsl.schedule.primitive import BlockRef, BufferRef, IndexMap, LoopRef, Rewrite, apply
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.refusal import ScheduleRefusal


class NoGenerator(Exception):
    """A primitive has a parameter of a kind that nothing here makes."""


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a primitive."""

    name: str
    args: tuple[object, ...]
    kwargs: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}{self.args}{dict(self.kwargs) or ''}"

    def apply(self, program: Program) -> Rewrite[typing.Any]:
        return apply(program, self.name, *self.args, **dict(self.kwargs))


@dataclass(slots=True)
class Site:
    """A program, and what has been chosen for the parameters before this one."""

    program: Program
    rng: random.Random
    primitive: str
    chosen: dict[str, typing.Any] = field(default_factory=dict[str, typing.Any])

    @property
    def nests(self) -> list[tuple[tuple[For, ...], Block]]:
        return [(around, s) for around, s in walk(self.program.body) if isinstance(s, Block)]

    @property
    def loops(self) -> list[For]:
        return [s for _, s in walk(self.program.body) if isinstance(s, For)]

    def below(self, loop: For) -> list[Block]:
        return [s for _, s in walk(loop.body) if isinstance(s, Block)]

    def loop(self) -> For | None:
        """The loop that was chosen, if one was."""
        names = [v.name for v in self.chosen.values() if isinstance(v, LoopRef)]
        return next((x for x in self.loops if x.var in names), None)

    def nest(self) -> tuple[tuple[For, ...], Block] | None:
        """The block that was chosen with the loops around it, if one was."""
        names = [v.name for v in self.chosen.values() if isinstance(v, BlockRef)]
        return next((n for n in self.nests if n[1].name in names), None)

    def mostly(self, good: Sequence[typing.Any], all_: Sequence[typing.Any]) -> typing.Any:
        """One of the good ones; now and then any."""
        return self.rng.choice(good if good and self.rng.random() < 0.85 else all_)


class NothingToName(Exception):
    """The program has no loop left, so no step can name one."""


def random_step(program: Program, rng: random.Random, name: str | None = None) -> Step:
    """Some call of the primitive `name`, or of any."""
    name = rng.choice(sorted(PRIMITIVES)) if name is None else name
    site = Site(program, rng, name)
    args: list[object] = []
    kwargs: list[tuple[str, object]] = []
    for p in PRIMITIVES[name].signature.parameters.values():
        if p.default is not inspect.Parameter.empty and rng.random() < 0.3:
            if p.kind is not inspect.Parameter.KEYWORD_ONLY:
                break  # those after it have defaults too
            continue
        value = _argument(site, p)
        site.chosen[p.name] = value
        if p.kind is inspect.Parameter.VAR_POSITIONAL:
            args.extend(value)
        elif p.kind is inspect.Parameter.KEYWORD_ONLY:
            kwargs.append((p.name, value))
        else:
            args.append(value)
    return Step(name, tuple(args), tuple(kwargs))


def random_schedule(program: Program, rng: random.Random, tries: int) -> tuple[Program, list[Step]]:
    """The program after so many tries, and the steps that were accepted."""
    steps: list[Step] = []
    for _ in range(tries):
        try:
            step = random_step(program, rng)
            program = step.apply(program).program
        except (NothingToName, ScheduleRefusal):
            continue
        steps.append(step)
    return program, steps


def _argument(site: Site, p: inspect.Parameter) -> typing.Any:
    hint = HINTS.get(f"{site.primitive}.{p.name}") or HINTS.get(p.name)
    if hint is not None:
        return hint(site)
    if p.kind is inspect.Parameter.VAR_POSITIONAL:
        raise NoGenerator(f"{site.primitive}: nothing makes the list `{p.name}`")
    members = typing.get_args(p.annotation) if isinstance(p.annotation, types.UnionType) else (p.annotation,)
    known = [m for m in members if m in KINDS]
    if not known:
        raise NoGenerator(f"{site.primitive}: nothing makes `{p.name}`, {p.annotation}")
    return KINDS[site.rng.choice(known)](site)


# --- by kind ----------------------------------------------------------------------------------------------------------


def _any_loop(site: Site) -> LoopRef:
    loops = site.loops
    if not loops:
        raise NothingToName
    nest = site.nest()
    return LoopRef(site.mostly(nest[0] if nest else (), loops).var)


def _serial_loop(site: Site) -> LoopRef:
    loops = site.loops
    if not loops:
        raise NothingToName
    return LoopRef(site.mostly([x for x in loops if x.kind is LoopKind.SERIAL], loops).var)


def _block(site: Site) -> BlockRef:
    loop, everything = site.loop(), [b for _, b in site.nests]
    return BlockRef(site.mostly(site.below(loop) if loop else (), everything).name)


def _buffer(site: Site) -> BufferRef:
    program, nest, loop = site.program, site.nest(), site.loop()
    near = [nest[1]] if nest else site.below(loop) if loop else []
    own = sorted({n for b in near for n in touched(b)})
    return BufferRef(site.mostly(own, [b.name for b in (*program.params, *program.buffers)]))


def _layout(site: Site) -> IndexMap:
    """A map of as many indices as the buffer has, or the block has iterators: moved, cut in two, or two of them joined."""
    rng = site.rng
    sizes = _sizes(site)
    params = tuple(f"d{n}" for n in range(len(sizes)))
    results: list[Expr] = [Var(p) for p in params]
    rng.shuffle(results)
    for _ in range(rng.choice([0, 1, 1, 2])):
        if not results:
            break
        at, n = rng.randrange(len(results)), index(rng.choice([2, 2, 3, 4]))
        whole = results.pop(at)
        if isinstance(whole, Var) and results and rng.random() < 0.3:
            other = results.pop(rng.randrange(len(results)))
            results.insert(0, add(mul(other, index(max(1, sizes[params.index(whole.name)]))), whole))
            continue
        results.insert(rng.randint(0, len(results)), floordiv(whole, n))
        results.insert(rng.randint(0, len(results)), floormod(whole, n))
    return IndexMap(params, tuple(results))


def _sizes(site: Site) -> list[int]:
    for value in site.chosen.values():
        if isinstance(value, BufferRef) and "reindex" not in site.primitive:
            return [constant(e) or 1 for e in site.program.buffer(value.name).shape]
    nest = site.nest()
    return [constant(it.extent) or 1 for it in nest[1].iters] if nest else [1, 1]


KINDS: dict[object, Callable[[Site], typing.Any]] = {
    LoopRef: _serial_loop,
    BlockRef: _block,
    BufferRef: _buffer,
    IndexMap: _layout,
    bool: lambda site: site.rng.random() < 0.5,
    int: lambda site: site.rng.choice([0, 1, 1, 2, 2, 3, 4, -1]),
    type(None): lambda _: None,
}


# --- by name ----------------------------------------------------------------------------------------------------------


def _factors(site: Site) -> tuple[int | None, ...]:
    loop = site.loop()
    extent = (loop and constant(loop.extent)) or 1
    divisors = [n for n in range(1, extent + 1) if extent % n == 0]
    found: list[int | None] = [site.rng.choice([*divisors, 2, 3]) for _ in range(site.rng.choice([1, 1, 2]))]
    found.insert(site.rng.randrange(len(found) + 1), None)
    if site.rng.random() < 0.1:
        found[found.index(None)] = site.rng.choice([1, 2, 3])
    return tuple(found)


def _partial(site: Site) -> bool | str:
    """`split` knows a second way where its signature says so."""
    kinds = typing.get_args(PRIMITIVES[site.primitive].signature.parameters["partial"].annotation)
    return site.rng.choice([True, True, False, *(["cut"] if str in kinds else [])])


def _path(site: Site) -> tuple[For, ...]:
    paths = [around for around, _ in site.nests if around]
    if not paths:
        raise NothingToName
    return site.rng.choice(paths)


def _neighbours(site: Site) -> tuple[LoopRef, ...]:
    path = _path(site)
    at = site.rng.randrange(len(path))
    return tuple(LoopRef(x.var) for x in path[at : at + site.rng.choice([2, 2, 3])])


def _some(site: Site) -> tuple[LoopRef, ...]:
    path = _path(site)
    return tuple(LoopRef(x.var) for x in site.rng.sample(path, site.rng.randint(1, len(path))))


def _bodies(site: Site) -> list[tuple[object, ...]]:
    return [site.program.body, *(x.body for x in site.loops)]


def _followed(site: Site) -> LoopRef:
    """A loop behind which there stands another one."""
    pairs = [a for body in _bodies(site) for a, b in pairwise(body) if _both_loops(a, b)]
    return LoopRef(site.mostly(pairs, site.loops or [_no_loop()]).var)


def _follower(site: Site) -> LoopRef:
    first = site.loop()
    after = [b for body in _bodies(site) for a, b in pairwise(body) if a is first and isinstance(b, For)]
    return LoopRef(site.mostly(after, site.loops).var)


def _both_loops(a: object, b: object) -> bool:
    return isinstance(a, For) and isinstance(b, For)


def _no_loop() -> typing.NoReturn:
    raise NothingToName


def _inside(site: Site) -> LoopRef:
    outer = site.loop()
    return LoopRef(site.mostly([x for x in outer.body if isinstance(x, For)] if outer else [], site.loops).var)


def _place_of(site: Site) -> LoopRef:
    """A loop around a block that reads what the chosen block writes, or writes what it reads."""
    nest = site.nest()
    if not site.loops or nest is None:
        raise NothingToName
    block = nest[1]
    near = [x for around, b in site.nests if b is not block and touched(b) & touched(block) for x in around]
    return LoopRef(site.mostly(near, site.loops).var)


def _producer(site: Site) -> BlockRef:
    """A block whose result another one reads."""
    read = {x.buffer for _, b in site.nests for s in b.body for x in loads(s.value) if x.buffer != s.buffer}
    blocks = [b for _, b in site.nests]
    return BlockRef(site.mostly([b for b in blocks if b.body[0].buffer in read], blocks).name)


def _reader(site: Site) -> BlockRef:
    nest, blocks = site.nest(), [b for _, b in site.nests]
    own = nest[1].body[0].buffer if nest else ""
    found = [b for b in blocks if any(x.buffer == own for s in b.body for x in loads(s.value))]
    return BlockRef(site.mostly(found, blocks).name)


def _reduction(site: Site) -> BlockRef:
    blocks = [b for _, b in site.nests]
    return BlockRef(site.mostly([b for b in blocks if b.is_reduction and b.init], blocks).name)


def _counting(site: Site) -> LoopRef:
    """A loop that counts a reduction of the chosen block."""
    nest = site.nest()
    if not site.loops or nest is None:
        raise NothingToName
    around, block = nest
    counted = {n for it in block.iters if it.kind is IterKind.REDUCE for n in free_vars(it.binding)}
    return LoopRef(site.mostly([x for x in around if x.var in counted], site.loops).var)


def _points(site: Site) -> tuple[int, ...]:
    loop = site.loop()
    extent = (loop and constant(loop.extent)) or 2
    return tuple(sorted(site.rng.sample(range(extent + 1), min(extent, site.rng.choice([1, 1, 2])))))


def _many(site: Site) -> LoopRef:
    """A loop with several statements."""
    loops = site.loops
    if not loops:
        raise NothingToName
    return LoopRef(site.mostly([x for x in loops if len(x.body) > 1], loops).var)


def _stages(site: Site) -> tuple[int, ...]:
    loop = site.loop()
    count = len(loop.body) if loop else 1
    return (*sorted(site.rng.choice([0, 0, 1, 2]) for _ in range(count - 1)), site.rng.choice([1, 2]))


def _order(site: Site) -> tuple[int, ...]:
    stages = site.chosen["stages"]
    places = list(range(len(stages)))
    if site.rng.random() < 0.5:
        site.rng.shuffle(places)
    return tuple(places)


def _piped(site: Site) -> LoopRef:
    loops = site.loops
    if not loops:
        raise NothingToName
    return LoopRef(site.mostly([x for x in loops if x.kind is LoopKind.PIPELINED], loops).var)


def _roles(site: Site) -> tuple[str, ...]:
    loop = site.loop()
    return tuple(site.rng.choice(["producer", "consumer"]) for _ in loop.body) if loop else ("one", "two")


def _iterators(site: Site) -> tuple[str, ...]:
    nest = site.nest()
    names = [it.name for it in nest[1].iters] if nest else ["i"]
    return tuple(site.rng.sample(names, len(names)))


def _padding(site: Site) -> tuple[int, ...]:
    nest = site.nest()
    return tuple(site.rng.choice([1, 2, 3, 4]) for _ in nest[1].iters) if nest else (1,)


def _noted(site: Site) -> str:
    notes = [x.annotations for x in (*site.loops, *(b for _, b in site.nests))]
    keys = sorted({k for each in (*notes, site.program.annotations) for k, _ in each})
    return site.mostly(keys, ["note"])


HINTS: dict[str, Callable[[Site], typing.Any]] = {
    "add_unit_loop.target": lambda s: _block(s) if s.rng.random() < 0.5 or not s.loops else _any_loop(s),
    "annotate.value": lambda s: s.rng.choice([True, 1, 2.5, "x"]),
    "axis": lambda s: s.rng.choice([0, 0, 1, -1, 2]),
    "bind.axis": lambda s: s.rng.choice(["block.x", "block.y", "thread.x", "thread.y", "lane", "warp"]),
    "asynchronous": lambda s: (s.chosen["stages"][0],),
    "compute_at.block": _producer,
    "compute_at.loop": lambda s: "root" if s.rng.random() < 0.1 else _place_of(s),
    "compute_inline.block": _producer,
    "decompose_reduction.block": _reduction,
    "distance": lambda s: s.rng.choice([1, 2, 3]),
    "epilogue": _reader,
    "factors": _factors,
    "fuse.loops": _neighbours,
    "fuse_reduction_epilogue.block": _reduction,
    "intrinsic": lambda s: s.rng.choice([i.name for i in s.program.intrinsics] or ["none"]),
    "key": lambda s: s.rng.choice(["note", "other"]),
    "merge.first": _followed,
    "merge.second": _follower,
    "order": _order,
    "pad_value": lambda s: s.rng.choice([0, 0, 1, 0.5, -1]),
    "padding": _padding,
    "partial": _partial,
    "points": _points,
    "registers": lambda s: tuple(s.rng.choice([24, 40, 232]) for _ in dict.fromkeys(s.chosen["roles"])),
    "reorder.loops": _some,
    "reorder_block_iters.order": _iterators,
    "reverse_compute_at.loop": _place_of,
    "reverse_compute_inline.block": _reader,
    "rfactor.block": _reduction,
    "rfactor.loop": _counting,
    "roles": _roles,
    "scope": lambda s: s.rng.choice(["global", "local", "local", "shared"]),
    "skew.inner": _inside,
    "software_pipeline.loop": _many,
    "specialize.loop": _piped,
    "stages": _stages,
    "unannotate.key": _noted,
}
"""Ways to make an argument by `primitive.parameter`, or by `parameter` for all that call it so."""
