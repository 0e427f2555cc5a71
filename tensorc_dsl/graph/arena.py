"""Places the values of a model: computed ones share one block of memory, the arena, as far as they are not needed at once.

Offsets are found as in register allocation over intervals: the largest value first, each in the smallest gap among those
that live at the same time (best fit; Wilson et al., Dynamic Storage Allocation: A Survey and Critical Review, 1995). What
reaches the top is then placed earlier, as long as that lowers the top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Literal

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.check.models import Call, ModelPlan, View, shape_of
from tensorc_dsl.ir.target import CACHE_LINE

Base = Literal["arena", "input", "output", "weight"]


@frozen
class Place:
    """Where a value begins: in the arena, or in the array of the input, output or weight `name`; `offset` is in bytes."""

    base: Base
    name: str
    offset: int


@frozen
class PlacedCall:
    """A call of a task: the places of its arguments, and of its results in the order of the program's outputs."""

    task: str
    arguments: tuple[Place, ...]
    results: tuple[Place, ...]


@frozen
class Copy:
    """`size` bytes that are copied: an output of its own, for a view of what the caller, a file or another output has."""

    source: Place
    target: Place
    size: int


@frozen
class Arrangement:
    """The steps of a model with a place for each value, in an arena of `size` bytes.

    No arena for the same order of steps is smaller than `bound`, the most bytes that are needed at once.
    """

    steps: tuple[PlacedCall | Copy, ...]
    size: int
    bound: int


def arranged(plan: ModelPlan) -> Arrangement:
    """The places of all values of a plan.

    A view has the memory of what it views. A computed value that is an output, or that an output views whole, is computed
    where the caller wants the output. Every other output that is a view is a copy.
    """
    sizes = {name: prod(shape_of(b)) * b.dtype.bytes for name, b in plan.values.items()}
    viewed = {s.result: s.argument for s in plan.steps if isinstance(s, View)}

    def root(name: str) -> str:
        while name in viewed:
            name = viewed[name]
        return name

    places = {n: Place("input", n, 0) for n in plan.inputs} | {n: Place("weight", n, 0) for n in plan.weights}
    for name in plan.outputs:
        if sizes[name] == sizes[root(name)]:
            places.setdefault(root(name), Place("output", name, 0))
    copies = {name for name in plan.outputs if sizes[name] and places.get(root(name)) != Place("output", name, 0)}
    blocks: list[Block] = []
    in_arena: dict[str, int] = {}
    steps: list[PlacedCall | Copy] = []

    def block(size: int) -> Place:
        blocks.append(Block(-(-size // CACHE_LINE) * CACHE_LINE, len(steps), len(steps)))
        return Place("arena", "", len(blocks) - 1)

    def place(name: str) -> Place:
        name = root(name)
        if name in in_arena:
            number = in_arena[name]
            blocks[number] = replace(blocks[number], last=len(steps))
        return places[name]

    for step in plan.steps:
        match step:
            case Call(task=task, arguments=arguments, results=results):
                given = tuple(map(place, arguments))
                made: list[Place] = []
                for name, b in zip(results, plan.programs[task].outputs, strict=True):
                    if name not in places:
                        at = block(prod(shape_of(b)) * b.dtype.bytes)
                        if name == "_":
                            made.append(at)
                            continue
                        places[name], in_arena[name] = at, at.offset
                    made.append(places[name])
                steps.append(PlacedCall(task, given, tuple(made)))
            case View(result=name):
                if name in copies:
                    steps.append(Copy(place(name), Place("output", name, 0), sizes[name]))
    steps += [Copy(place(n), Place("output", n, 0), sizes[n]) for n in plan.outputs if n in copies and n not in viewed]
    offsets, size = packed(blocks)

    def final(p: Place) -> Place:
        return replace(p, offset=offsets[p.offset]) if p.base == "arena" else p

    placed = tuple(
        replace(s, source=final(s.source))
        if isinstance(s, Copy)
        else replace(s, arguments=tuple(map(final, s.arguments)), results=tuple(map(final, s.results)))
        for s in steps
    )
    return Arrangement(placed, size, most_at_once(blocks))


@frozen
class Block:
    """`size` bytes that are needed from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


def most_at_once(blocks: Sequence[Block]) -> int:
    """The largest sum of the sizes of blocks that are needed in one step."""
    changes: dict[int, int] = {}
    for b in blocks:
        changes[b.first] = changes.get(b.first, 0) + b.size
        changes[b.last + 1] = changes.get(b.last + 1, 0) - b.size
    most = now = 0
    for step in sorted(changes):
        now += changes[step]
        most = max(most, now)
    return most


ROUNDS, PAIRS = 64, 2_000_000
"""How often each of three orders in which blocks are placed is changed at most; and how many pairs of blocks that are needed
at once are looked at in all, a second's work."""


def packed(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """An offset for each block, such that no two that are needed in the same step overlap, and the end of the last one."""
    bound = most_at_once(blocks)
    meets = [[k for k, other in enumerate(blocks) if _meet(b, other)] for b in blocks]

    def key(k: int) -> tuple[int, int, int]:
        b = blocks[k]
        return -b.size, b.first - b.last, b.first

    by_size = sorted(range(len(blocks)), key=key)
    by_time = sorted(range(len(blocks)), key=lambda k: (blocks[k].first, key(k)))
    by_area = sorted(
        range(len(blocks)), key=lambda k: (-blocks[k].size * (blocks[k].last - blocks[k].first + 1), key(k))
    )
    best, size = _placed(by_size, blocks, meets)
    rounds = min(ROUNDS, PAIRS // (3 * (1 + sum(map(len, meets)))))
    for order in (by_size, by_time, by_area):
        tried = set[tuple[int, ...]]()
        while size > bound and len(tried) <= rounds and tuple(order) not in tried:
            tried.add(tuple(order))
            offsets, end = _placed(order, blocks, meets)
            if end < size:
                best, size = offsets, end
            top = {k for k, b in enumerate(blocks) if offsets[k] + b.size == end}
            # What lies below the top decides how high it is, so it goes first together with it.
            order = [k for k in order if k in top] + [k for k in order if k not in top]
    return best, size


def _meet(a: Block, b: Block) -> bool:
    return a.first <= b.last and b.first <= a.last


def _placed(order: Sequence[int], blocks: Sequence[Block], meets: Sequence[Sequence[int]]) -> tuple[list[int], int]:
    """Offsets for the blocks in that order, each in the smallest gap that is large enough, else behind what is there."""
    offsets = [-1] * len(blocks)
    end = 0
    for k in order:
        size = blocks[k].size
        taken = sorted((offsets[j], offsets[j] + blocks[j].size) for j in meets[k] if offsets[j] >= 0)
        at, gap, low = -1, 0, 0
        for begin, behind in taken:
            if size <= begin - low and (at < 0 or begin - low < gap):
                at, gap = low, begin - low
            low = max(low, behind)
        offsets[k] = low if at < 0 else at
        end = max(end, offsets[k] + size)
    return offsets, end
