"""The site of a random step: the program so far, the arguments chosen for the step, and the choices there are."""

from __future__ import annotations

import random
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensorc_dsl.ir.expr import Expr, Var, add, constant, floordiv, floormod, index, mul
from tensorc_dsl.ir.program import Block, For, LoopKind, Program, walk
from tensorc_dsl.proof.sets.accesses import touched
from tensorc_dsl.schedule.step import BlockRef, BufferRef, IndexMap, LoopRef


class NothingToName(Exception):
    """The program has nothing that the step could name."""


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
    def blocks(self) -> list[Block]:
        return [b for _, b in self.nests]

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
        """One of the good ones; now and then any. Raises NothingToName."""
        found = good if good and self.rng.random() < 0.85 else all_
        if not found:
            raise NothingToName
        return self.rng.choice(found)

    def likely(self, good: Sequence[typing.Any], all_: Sequence[typing.Any]) -> typing.Any:
        """As `mostly`; but without good values the step is rarely tried. Raises NothingToName."""
        if not good and self.rng.random() < 0.8:
            raise NothingToName
        return self.mostly(good, all_)

    def mostly_loop(self, good: Sequence[For]) -> LoopRef:
        return LoopRef(self.mostly(good, self.loops).var)

    def likely_loop(self, good: Sequence[For]) -> LoopRef:
        return LoopRef(self.likely(good, self.loops).var)

    def likely_block(self, good: Sequence[Block]) -> BlockRef:
        return BlockRef(self.likely(good, self.blocks).name)


# --- by kind ----------------------------------------------------------------------------------------------------------


def any_loop(site: Site) -> LoopRef:
    nest = site.nest()
    return site.mostly_loop(nest[0] if nest else ())


def serial_loop(site: Site) -> LoopRef:
    """A loop that has no kind; one around the block, where that is known."""
    nest = site.nest()
    serial = [x for x in (nest[0] if nest else site.loops) if x.kind is LoopKind.SERIAL]
    return site.mostly_loop(serial)


def any_block(site: Site) -> BlockRef:
    loop = site.loop()
    return BlockRef(site.mostly(site.below(loop) if loop else (), site.blocks).name)


def any_buffer(site: Site) -> BufferRef:
    program, nest, loop = site.program, site.nest(), site.loop()
    near = [nest[1]] if nest else site.below(loop) if loop else []
    own = sorted({n for b in near for n in touched(b)})
    return BufferRef(site.mostly(own, [b.name for b in (*program.params, *program.buffers)]))


def layout(site: Site) -> IndexMap:
    """A map of as many indices as the buffer has, or the block has iterators: moved, shifted, cut in two, or joined."""
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
        if rng.random() < 0.2:
            whole = add(whole, index(rng.choice([1, 3])))
        results.insert(rng.randint(0, len(results)), floordiv(whole, n))
        results.insert(rng.randint(0, len(results)), floormod(whole, n))
    return IndexMap(params, tuple(results))


def _sizes(site: Site) -> list[int]:
    for value in site.chosen.values():
        if isinstance(value, BufferRef) and "reindex" not in site.primitive:
            return [constant(e) or 1 for e in site.program.buffer(value.name).shape]
    nest = site.nest()
    return [constant(it.extent) or 1 for it in nest[1].iters] if nest else [1, 1]
