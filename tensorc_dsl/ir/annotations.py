"""What annotations of loops and blocks say: axes of a GPU, pipelines, look-back, swizzled memory, stores past the
caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import Expr, Var, add, constant, floordiv, floormod, index, loads, mul, xor
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Axis, Block, For, IterKind, LoopKind, Program, blocks_in, walk

# Rules for loops that are bound to the axes of a GPU, which every program keeps.
#
# A statement at the top of a program is a kernel. It starts one grid of blocks of threads, so each axis has one size in it.


_RANKS = {"block": 0, "cluster": 0, "warpgroup": 1, "warp": 2, "lane": 3, "thread": 1}
"""The nesting of levels: a level stands inside levels of a smaller rank."""

_SAME_THREADS = tuple({"thread", level} for level in ("warpgroup", "warp", "lane"))
"""Pairs of levels that cannot be nested, since both count the same threads."""

_WARP = 32
"""The number of lanes in a warp."""

_WARPGROUP = 4
"""The number of warps in a warpgroup."""

_CLUSTER = 8
"""The most blocks of a cluster on every GPU that has clusters. CUDA C++ Programming Guide, "Thread Block Clusters"."""


@frozen
class AxisProblem:
    """The reason why the loop `loop` cannot be bound as it is. `other` is the loop that it conflicts with, or None."""

    loop: str
    axis: Axis
    other: str | None
    reason: str
    repair: str


def axis_problem(program: Program) -> AxisProblem | None:
    """The problem of the first bound loop that breaks a rule, in text order; None if all are right."""
    seen: dict[tuple[int, Axis], For] = {}
    for around, s in walk(program.body):
        if not isinstance(s, For) or s.axis is None:
            continue
        kernel = around[0] if around else s
        first = seen.setdefault((id(kernel), s.axis), s)
        for problem in _problems(around, s, s.axis, first):
            return problem
    return None


def _problems(around: tuple[For, ...], loop: For, axis: Axis, first: For) -> Iterator[AxisProblem]:
    def problem(reason: str, repair: str, other: For | None = None) -> AxisProblem:
        return AxisProblem(loop.var, axis, None if other is None else other.var, reason, repair)

    size = constant(loop.extent)
    for other in around:
        if other.axis is axis:
            yield problem(f"it is inside `{other.var}`, which is bound to it", "bind it to another axis", other)
        elif other.axis is not None and {axis.level, other.axis.level} in _SAME_THREADS:
            reason = f'it is inside `{other.var}`, and "{other.axis}" counts the same threads'
            yield problem(reason, "count threads by dimensions, or by warpgroups, warps and lanes", other)
        elif other.axis is not None and _RANKS[other.axis.level] > _RANKS[axis.level]:
            reason = f'it is inside `{other.var}`, which is bound to "{other.axis}"'
            yield problem(reason, "bind loops from the outside in: blocks, then what counts threads", other)
        elif not axis.counts_threads and other.kind is not LoopKind.BOUND and constant(other.extent) != 1:
            reason = f"it is inside `{other.var}`, and a grid starts once"
            yield problem(reason, f"reorder the loops so that `{loop.var}` is outside of `{other.var}`", other)
    if first is not loop and not axis.counts_threads:
        reason = f"`{first.var}` is bound to it in the same kernel, and a grid starts once"
        yield problem(reason, "leave the two in statements of their own", first)
    if axis.counts_threads and size is None:
        reason = f"it has `{format_expr(loop.extent)}` iterations, and the size of a block must be known"
        yield problem(reason, f"split `{loop.var}` with a number for its inner factor, and bind that")
    if axis is Axis.CLUSTER_X and (size is None or size > _CLUSTER):
        reason = f"a cluster has up to {_CLUSTER} blocks, and `{loop.var}` has `{format_expr(loop.extent)}` iterations"
        yield problem(reason, f'split `{loop.var}`, bind the outer part to "block.x" and the inner one to "{axis}"')
    if first.extent != loop.extent:
        sizes = f"`{format_expr(loop.extent)}` iterations and `{first.var}` has `{format_expr(first.extent)}`"
        yield problem(f"in one kernel it has one size, but `{loop.var}` has {sizes}", "split both alike", first)
    in_group = any(x.axis is Axis.WARPGROUP for x in around)
    limit = _WARP if axis is Axis.LANE else _WARPGROUP if axis is Axis.WARP and in_group else None
    if limit is not None and size is not None and size > limit:
        whole = "a warp has 32 lanes" if axis is Axis.LANE else "a warpgroup has 4 warps"
        yield problem(f"{whole}, and `{loop.var}` has {size} iterations", f"split `{loop.var}` by {limit}")


# Outputs that are stored past the caches: a hint on a block, which does not change the result.


STREAM = "store.nontemporal"
"""A block with this annotation, true, uses non-temporal stores where vectors fill whole cache lines: the lines are not needed
again soon, and their old content need not be fetched. Backends may ignore it."""


def stream_problem(program: Program, block: Block) -> str | None:
    """The reason why a block's stores should go through the caches; None if they may bypass them."""
    names = {s.buffer for s in (*block.init, *block.body)}
    if len(names) > 1:
        return f"it writes {len(names)} buffers"
    (name,) = names
    if name not in {p.name for p in program.outputs}:
        return f"`{name}` is not an output"
    for _, b in walk(program.body):
        if isinstance(b, Block) and name in _read(b):
            return f"`{b.name}` reads `{name}`"
    return None


def streamed(program: Program) -> frozenset[str]:
    """The outputs for which every writing block has the annotation and no problem."""
    blocks = [b for _, b in walk(program.body) if isinstance(b, Block)]
    asked = {b.name for b in blocks if dict(b.annotations).get(STREAM) is True and stream_problem(program, b) is None}
    kept = {s.buffer for b in blocks if b.name not in asked for s in (*b.init, *b.body)}
    return frozenset(s.buffer for b in blocks if b.name in asked for s in (*b.init, *b.body)) - kept


PREFETCH = "prefetch."
"""The annotation of a loop that has this and the name of a buffer is how many iterations ahead it is fetched."""


def fetched_ahead(loop: For) -> tuple[tuple[str, int], ...]:
    """The buffers that a loop fetches ahead, with the number of iterations."""
    found = ((k.removeprefix(PREFETCH), v) for k, v in loop.annotations if k.startswith(PREFETCH))
    return tuple((name, n) for name, n in found if isinstance(n, int))


def _read(b: Block) -> set[str]:
    return {x.buffer for s in (*b.init, *b.body) for e in (s.value, *s.indices) for x in loads(e)}


# Orders of elements in the memory of a block of a GPU that keep the rows of a tile in different banks.
#
# The memory has 32 banks of 4 bytes, and gives one word of each at a time: a line of 128 bytes. Rows that are whole lines
# apart begin in one bank, so reads of a column are serialized. A swizzle permutes the units of a line by bits of the line's
# number, as CUTLASS's `Swizzle<bits, log2(unit), shift>` does, with the bits that the distance of the rows needs. Then as
# many neighbouring rows as a line has units have the same unit in different banks, whatever their distance. A request for a
# whole line still gets a whole line.


LINE = 128
"""The bytes that all banks together give at a time."""

UNITS = (16, 32, 64)
"""The bytes that may stay adjacent: at least those of the widest access, at most half a line."""


@frozen
class Swizzle:
    """The place of element i is i, but `bits` bits of the number i / `unit` are those of i with as many bits of itself,
    from `shift` bits further up, added without carry."""

    unit: int
    bits: int
    shift: int

    @property
    def line(self) -> int:
        """The elements among which units change places; a buffer has a multiple of them."""
        return self.unit << self.bits

    @property
    def period(self) -> int:
        """The elements after which the permutations of lines repeat."""
        return self.unit << self.bits + self.shift


def swizzle_of(unit: int, distance: int, size: int) -> Swizzle | None:
    """The swizzle for rows that many elements of `size` bytes apart; None if they are in different banks as they are.

    `unit` divides the distance, and is a power of two.
    """
    units = distance // unit
    factor = (units & -units).bit_length() - 1
    whole = (LINE // (unit * size)).bit_length() - 1
    return Swizzle(unit, min(whole, factor), max(whole, factor)) if factor > 0 else None


def swizzled(terms: dict[Expr, int], constant: int, s: Swizzle) -> Expr:
    """The place of the element with number `constant` plus the sum of the atoms by their factors.

    What moves by whole lines stays outside of the permutation, and what moves by whole periods outside of its choice. So
    accesses a constant apart share what both are computed from.
    """
    moved, kept = _parted(terms, constant, s.line)
    chosen, _ = _parted(terms, constant, s.period)
    row = floormod(floordiv(chosen, index(s.unit << s.shift)), index(1 << s.bits))
    place = mul(xor(floordiv(moved, index(s.unit)), row), index(s.unit))
    return add(add(place, floormod(moved, index(s.unit))), kept)


def _parted(terms: dict[Expr, int], constant: int, n: int) -> tuple[Expr, Expr]:
    """The sum in two parts, the second of which is a multiple of `n`."""
    inside, outside = index(constant % n), index(constant - constant % n)
    for e, c in terms.items():
        part = mul(e, index(c))
        inside, outside = (inside, add(outside, part)) if c % n == 0 else (add(inside, part), outside)
    return inside, outside


# Reads and writes the annotations of a pipelined loop, which `software_pipeline` and `specialize` make.
#
# They are part of the loop's meaning, so they are printed, parsed and verified with it.


STAGES = "pipeline.stages"
ORDER = "pipeline.order"
ASYNC = "pipeline.asynchronous"
ROLES = "specialize.roles"
REGISTERS = "specialize.registers"
TEAMS = "specialize.teams"


def written_out(values: Iterable[int]) -> str:
    """The numbers as the annotation spells them: "0, 0, 1"."""
    return ", ".join(map(str, values))


def read_back(loop: For, key: str) -> tuple[int, ...] | None:
    """The numbers of the annotation with that key; None if it is missing or not a list of numbers."""
    text = dict(loop.annotations).get(key)
    if not isinstance(text, str):
        return None
    try:
        return tuple(int(x) for x in text.split(","))
    except ValueError:
        return None


def roles(loop: For) -> tuple[str, ...]:
    """The role of each statement of a specialized loop; empty for other loops."""
    text = dict(loop.annotations).get(ROLES)
    return tuple(text.split(", ")) if isinstance(text, str) else ()


def teams(loop: For) -> int:
    """How many teams of threads have the role that uses what others load, and take turns."""
    found = dict(loop.annotations).get(TEAMS)
    return found if isinstance(found, int) and found > 1 else 1


def pipeline(loop: For) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The stage and the position in the order of each statement; None unless both have one number per statement."""
    stages, order = read_back(loop, STAGES), read_back(loop, ORDER)
    count = len(loop.body)
    if stages is None or order is None or len(stages) != count or sorted(order) != list(range(count)):
        return None
    return (stages, order) if min(stages) == 0 else None


# Scans whose value the blocks of a GPU pass on: a loop over blocks runs its iterations side by side, but for the steps of
# such a scan, each of which waits for the one before.


LOOK_BACK = "look_back"
"""The key of the annotation, true, of a scan whose steps may run on different blocks of a GPU, which pass its value on."""


def is_passed_on(b: Block) -> bool:
    """Whether the steps of a block may run on different blocks of a GPU."""
    return dict(b.annotations).get(LOOK_BACK) is True


def passed_along(loop: For) -> tuple[Block, ...]:
    """The scans inside of a loop whose steps its iterations are, and which these pass on if they are blocks; none if they
    are bound to something else."""
    if loop.axis is not None and loop.axis.level != "block":
        return ()
    return tuple(
        b
        for b in blocks_in(loop.body)
        if is_passed_on(b) and any(it.kind is IterKind.SCAN and it.binding == Var(loop.var) for it in b.iters)
    )
