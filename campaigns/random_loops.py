"""Makes random arguments that are loops, or depend on the loop that was chosen before."""

from __future__ import annotations

import typing
from itertools import pairwise

from campaigns.random_site import NothingToName, Site
from tensorc_dsl.ir.expr import constant, free_vars, loads
from tensorc_dsl.ir.program import For, IterKind, LoopKind, Stmt, walk
from tensorc_dsl.proof.sets.instructions import Match, match_nest
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.step import BlockRef, LoopRef


def factors(site: Site) -> tuple[int | None, ...]:
    loop = site.loop()
    extent = (loop and constant(loop.extent)) or 1
    divisors = [n for n in range(1, extent + 1) if extent % n == 0]
    found: list[int | None] = [site.rng.choice([*divisors, 2, 3]) for _ in range(site.rng.choice([1, 1, 2]))]
    found.insert(site.rng.randrange(len(found) + 1), None)
    if site.rng.random() < 0.1:
        found[found.index(None)] = site.rng.choice([1, 2, 3])
    return tuple(found)


def partial(site: Site) -> bool | str:
    """A value of `split`'s parameter `partial`, which may be a string if its signature allows it."""
    kinds = typing.get_args(PRIMITIVES[site.primitive].signature.parameters["partial"].annotation)
    return site.rng.choice([True, True, False, *(["cut"] if str in kinds else [])])


def _path(site: Site) -> tuple[For, ...]:
    paths = [around for around, _ in site.nests if around]
    if not paths:
        raise NothingToName
    return site.rng.choice(paths)


def neighbours(site: Site) -> tuple[LoopRef, ...]:
    path = _path(site)
    at = site.rng.randrange(len(path))
    return tuple(LoopRef(x.var) for x in path[at : at + site.rng.choice([2, 2, 3])])


def some(site: Site) -> tuple[LoopRef, ...]:
    path = _path(site)
    return tuple(LoopRef(x.var) for x in site.rng.sample(path, site.rng.randint(1, len(path))))


def terms_first(site: Site) -> tuple[LoopRef, ...]:
    """The loops around a block that accumulates, those of its reduction first."""
    paths = [(around, b) for around, b in site.nests if b.is_reduction and len(around) > 1]
    if not paths:
        raise NothingToName
    around, b = site.rng.choice(paths)
    terms = frozenset[str]().union(*(free_vars(it.binding) for it in b.iters if it.kind is IterKind.REDUCE))
    return tuple(LoopRef(x.var) for x in sorted(around, key=lambda x: x.var not in terms))


def steps_last(site: Site) -> tuple[LoopRef, ...]:
    """The loops around a scan, that of its steps last."""
    paths = [(around, it) for around, b in site.nests for it in b.iters if it.kind is IterKind.SCAN and len(around) > 1]
    if not paths:
        raise NothingToName
    around, steps = site.rng.choice(paths)
    return tuple(LoopRef(x.var) for x in sorted(around, key=lambda x: x.var in free_vars(steps.binding)))


def chosen(site: Site) -> LoopRef:
    """A loop that counts elements of a block that accumulates, and has its start elsewhere."""
    spatial = [
        x
        for around, b in site.nests
        if b.is_reduction and not b.init
        for x in around
        if any(x.var in free_vars(it.binding) for it in b.iters if it.kind is IterKind.SPATIAL)
    ]
    return site.mostly_loop(spatial)


def turned(site: Site) -> tuple[LoopRef, ...]:
    """The loops inside the outermost around a block that accumulates, the innermost before the others."""
    paths = [around[1:] for around, b in site.nests if b.is_reduction and not b.init and len(around) > 2]
    path = site.likely(paths, [_path(site)])
    return tuple(LoopRef(x.var) for x in (path[-1], *path[:-1]))


def _bodies(site: Site) -> list[tuple[Stmt, ...]]:
    return [site.program.body, *(x.body for x in site.loops)]


def followed(site: Site) -> LoopRef:
    """A loop behind which there stands another one."""
    pairs = [(a, b) for body in _bodies(site) for a, b in pairwise(body)]
    return site.mostly_loop([a for a, b in pairs if isinstance(a, For) and isinstance(b, For)])


def follower(site: Site) -> LoopRef:
    first = site.loop()
    return site.mostly_loop(
        [b for body in _bodies(site) for a, b in pairwise(body) if a is first and isinstance(b, For)]
    )


def carried(site: Site) -> LoopRef:
    """A loop around the steps of a scan over chunks, which `split_scan` makes, with another loop behind it."""
    around = [x for path, b in site.nests if b.name.endswith("_carry") for x in path]
    pairs = [(a, b) for body in _bodies(site) for a, b in pairwise(body)]
    return site.likely_loop([x for x in around if any(a is x and isinstance(b, For) for a, b in pairs)])


def after_carry(site: Site) -> LoopRef:
    """The loop that counts the steps of what reads a scan over chunks."""
    carries = {s.buffer for b in site.blocks if b.name.endswith("_carry") for s in b.body}
    found: list[For] = []
    for around, b in site.nests:
        stored = {s.buffer for s in b.body}
        if around and not carries & stored and carries & {x.buffer for s in b.body for x in loads(s.value)}:
            found.append(around[-1])
    return site.likely_loop(found)


def _name(s: Stmt) -> LoopRef | BlockRef:
    return LoopRef(s.var) if isinstance(s, For) else BlockRef(s.name)


def neighbour(site: Site) -> LoopRef | BlockRef:
    """A loop or block with others beside it."""
    return _name(site.likely([s for body in _bodies(site) if len(body) > 1 for s in body], site.blocks))


def beside(site: Site) -> LoopRef | BlockRef:
    """A statement in the body of the one that was chosen."""
    name = site.chosen["statement"].name
    here = [body for body in _bodies(site) if any(_name(s).name == name for s in body)]
    return _name(site.mostly([s for body in here for s in body if _name(s).name != name], site.blocks))


def followed_inside(site: Site) -> LoopRef | BlockRef:
    """A statement below the chosen loop, behind which others stand."""
    loop = site.loop()
    bodies = [x.body for _, x in walk((loop,)) if isinstance(x, For)] if loop else []
    return _name(site.mostly([s for body in bodies for s in body[:-1]], site.blocks))


def inside(site: Site) -> LoopRef:
    outer = site.loop()
    return site.mostly_loop([x for x in outer.body if isinstance(x, For)] if outer else [])


def points(site: Site) -> tuple[int, ...]:
    loop = site.loop()
    extent = (loop and constant(loop.extent)) or 2
    return tuple(sorted(site.rng.sample(range(extent + 1), min(extent, site.rng.choice([1, 1, 2])))))


def many(site: Site) -> LoopRef:
    """A loop with several statements."""
    return site.likely_loop([x for x in site.loops if len(x.body) > 1 and x.kind is LoopKind.SERIAL])


def piped(site: Site) -> LoopRef:
    """A pipeline of several statements."""
    return site.likely_loop([x for x in site.loops if x.kind is LoopKind.PIPELINED and len(x.body) > 1])


def grid(site: Site) -> LoopRef:
    """A loop over the blocks of a GPU."""
    return site.likely_loop([x for x in site.loops if x.axis is not None and x.axis.level == "block"])


def shortest(site: Site) -> LoopRef:
    """A loop around one block and nothing else."""
    return site.mostly_loop([around[-1] for around, _ in site.nests if around and len(around[-1].body) == 1])


def _instructions(site: Site, around: tuple[For, ...], loop: For) -> list[str]:
    """The instructions that do what the nest of a loop does."""
    return [i.name for i in site.program.intrinsics if isinstance(match_nest(around, loop, i), Match)]


def tile(site: Site) -> LoopRef:
    """The nest of some instruction; one that few nests are is as likely as one that many are."""
    nests = [(around, s) for around, s in walk(site.program.body) if isinstance(s, For)]
    by_name: dict[str, list[For]] = {}
    for around, x in nests:
        for name in _instructions(site, around, x):
            by_name.setdefault(name, []).append(x)
    return site.likely_loop(site.rng.choice(list(by_name.values())) if by_name else [])


def instruction(site: Site) -> str:
    every = [i.name for i in site.program.intrinsics] or ["none"]
    found = next((n for n in walk(site.program.body) if n[1] is site.loop()), None)
    good = _instructions(site, found[0], found[1]) if found and isinstance(found[1], For) else []
    return site.mostly(good, every)


# --- pipelines --------------------------------------------------------------------------------------------------------


def stages(site: Site) -> tuple[int, ...]:
    """A stage for each statement; mostly such that the first is 0 and none goes back."""
    loop = site.loop()
    count = len(loop.body) if loop else 1
    stages = [site.rng.choice([0, 0, 1, 2]) for _ in range(count)]
    if site.rng.random() < 0.85:
        least = min(stages)
        stages = sorted(s - least for s in stages)
    return tuple(stages)


def order(site: Site) -> tuple[int, ...]:
    places = list(range(len(site.chosen["stages"])))
    if site.rng.random() < 0.5:
        site.rng.shuffle(places)
    return tuple(places)


def roles(site: Site) -> tuple[str, ...]:
    loop = site.loop()
    count = len(loop.body) if loop else 2
    roles = [site.rng.choice(["producer", "consumer"]) for _ in range(count)]
    if count > 1 and site.rng.random() < 0.85:
        roles[0], roles[-1] = "producer", "consumer"
    return tuple(roles)
