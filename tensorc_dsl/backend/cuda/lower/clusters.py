"""Lets the blocks of a cluster load tiles for each other: one that all of them need comes from memory once.

Blocks of a cluster run at the same time, and TMA can load a tile to the shared memory of several of them at once (multicast).
Where a role loads, a tile is shared if integer sets prove that all blocks of a cluster load the same one, to the
same place, in the same rounds. Each of its boxes is then loaded by one block for all.

Each block has the mbarriers of its slots, as before. The bytes that one expects come from several blocks, perhaps before it
expects them: a phase ends when both have happened. Where a block loads, all warps of all blocks have to have read before:
so each warp arrives at the mbarrier of each block, and each block waits for all.

No block may access another one before its mbarriers are set up, or when it has ended. So all blocks of a cluster meet at the
beginning and at the end. PTX ISA 9.2, sections 9.7.9.27: "Tensor copy", 9.7.13.15: "mbarrier", 9.7.13.4: "barrier.cluster";
CUTLASS, `sm90_mma_tma_gmma_ss_warpspecialized`, has the same protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from tensorc_dsl.backend.cuda.lower.kernels import (
    CLUSTER,
    THREAD,
    ArriveMbarrier,
    Barrier,
    Device,
    DeviceKernel,
    Guard,
    InitMbarriers,
    Role,
    Steps,
    TmaLoad,
    WaitMbarrier,
    chains_in,
    roles_in,
)
from tensorc_dsl.backend.cuda.lower.shared_layout import descriptors_of
from tensorc_dsl.backend.cuda.lower.synchronization import Loops, placed
from tensorc_dsl.ir.expr import (
    ZERO,
    Compare,
    Expr,
    Var,
    add,
    constant,
    floormod,
    free_vars,
    index,
    mul,
    substitute,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.lower.flat import Collective, Flat, If, Loop, LowerError, TmaTile, span
from tensorc_dsl.proof.sets.linear_forms import Ranges, negate
from tensorc_dsl.proof.sets.sets import NotAffine, feasible
from tensorc_dsl.proof.sets.simplify import bounds, simplify

FEATURE = "sm_90"
"""The first GPU that has clusters. On others the blocks of one are blocks like any others."""

_OTHER = f"{CLUSTER}'"
"""The variable of another block of a cluster."""

_REPAIR = 'bind what counts its blocks to "block.x", "block.y" or "block.z"'


def with_clusters(k: DeviceKernel, features: Collection[str]) -> DeviceKernel:
    """The kernel, whose waits stand, with tiles that the blocks of a cluster load for each other, where the GPU has clusters.

    Raises LowerError if they load none for each other.
    """
    if k.cluster == 1 or FEATURE not in features:
        return k
    if k.mbarriers is None or not roles_in(k.body) or chains_in(k.body):
        raise LowerError(
            "the blocks of a cluster load tiles for each other where a role of its own starts TMA loads, and this kernel has"
            f" none; use `specialize` where TMA loads both factors, or {_REPAIR}"
        )
    _require_same_rounds(k)
    tiles = list(_loaded(k))
    if not any(shared for _, shared in tiles):
        every = dict.fromkeys(
            f"that of `{t.map.array}` begins at [{', '.join(map(format_expr, t.origin))}]" for t, _ in tiles
        )
        raise LowerError(
            f'no tile is the same for the {k.cluster} blocks of a cluster: {", ".join(every)}; bind to "{CLUSTER}" a loop'
            f" on which one of them does not depend, or {_REPAIR}"
        )
    body = _rewritten(k.body, k, _mbarriers_of_slots(k), (), ahead=False)
    first = next(n for n, s in enumerate(body) if isinstance(s, Barrier))
    whole = (*body[:first], Barrier(cluster=True), *body[first + 1 :], Barrier(cluster=True))
    return replace(k, body=whole, shared_loads=True)


# What the blocks of a cluster have in common.


def _extents(k: DeviceKernel, loops: Loops) -> dict[str, Expr]:
    return {THREAD: index(k.threads), **k.extents, _OTHER: index(k.cluster), **dict(loops)}


def _is_same(e: Expr, extents: Mapping[str, Expr]) -> bool:
    """Whether a number is proved to be the same in all blocks of a cluster."""
    if CLUSTER not in free_vars(e):
        return True
    return not _possible(extents, Compare("!=", e, substitute(e, {CLUSTER: Var(_OTHER)})))


def _holds_alike(cond: Expr, extents: Mapping[str, Expr]) -> bool:
    """Whether a condition is proved to hold in all blocks of a cluster or in none."""
    if CLUSTER not in free_vars(cond):
        return True
    return not _possible(extents, cond, negate(substitute(cond, {CLUSTER: Var(_OTHER)})))


def _possible(extents: Mapping[str, Expr], *conds: Expr) -> bool:
    try:
        return feasible(extents, conds)
    except NotAffine:
        return True


def _require_same_rounds(k: DeviceKernel) -> None:
    """Raises LowerError unless all blocks of a cluster wait at the same mbarriers, and arrive there, equally often."""
    for r in roles_in(k.body):
        for s, loops, conds in placed(r.body):
            if not isinstance(s, TmaLoad | WaitMbarrier | ArriveMbarrier):
                continue
            extents = _extents(k, loops)
            own = [e for e in (s.at, *(e for _, e in loops)) if not _is_same(e, extents)]
            own += [c for c in conds if not _holds_alike(c, extents)]
            if own:
                raise LowerError(
                    f"the blocks of a cluster may run different rounds of `{r.name}`, since `{format_expr(own[0])}` is not"
                    f" the same for all, and would wait for each other for ever; {_REPAIR}"
                )


def _loaded(k: DeviceKernel) -> Iterator[tuple[TmaTile, bool]]:
    """The tiles that a role loads, and whether each is shared."""
    for r in roles_in(k.body):
        for s, loops, _ in placed(r.body) if r.alone else ():
            if isinstance(s, TmaLoad):
                yield from _tiles(s.body, _extents(k, loops))


def _tiles(body: Sequence[Flat], extents: Mapping[str, Expr]) -> Iterator[tuple[TmaTile, bool]]:
    for s in body:
        if isinstance(s, Loop):
            yield from _tiles(s.body, {**extents, s.var: s.end})
        elif isinstance(s, Collective) and s.tile is not None:
            yield s.tile, _is_shared(s, s.tile, extents)


def _is_shared(s: Collective, tile: TmaTile, extents: Mapping[str, Expr]) -> bool:
    """Whether all blocks of a cluster load the same tile, to the same place."""
    first = (d.first for d in descriptors_of(s).values())
    return all(_is_same(e, extents) for e in (*tile.origin, *first))


def _mbarriers_of_slots(k: DeviceKernel) -> frozenset[int]:
    """The mbarriers at which warps arrive when they have read a slot."""
    out: set[int] = set()
    for r in roles_in(k.body):
        for s, loops, _ in placed(r.body):
            if isinstance(s, ArriveMbarrier) and s.slots:
                ranges: Ranges = {v: span(e) for v, e in _extents(k, loops).items()}
                low, high = bounds(simplify(s.at, ranges), ranges)
                assert low is not None and high is not None  # each is one of a known number
                out |= set(range(low, high + 1))
    return frozenset(out)


# What they do for each other.


def _rewritten(
    body: tuple[Device, ...], k: DeviceKernel, slots: Collection[int], loops: Loops, *, ahead: bool
) -> tuple[Device, ...]:
    """The statements with loads for all blocks of a cluster, and arrivals at each. Only what a role loads `ahead` waits until
    other blocks have read; what a thread waits for at once is for its own block."""
    out: list[Device] = []
    for s in body:
        match s:
            case InitMbarriers(awaited=awaited):
                out.append(InitMbarriers(tuple(n * k.cluster if m in slots else n for m, n in enumerate(awaited))))
            case ArriveMbarrier():
                out.append(replace(s, blocks=k.cluster) if s.slots else s)
            case TmaLoad(body=inner) if ahead:
                turn = Var(loops[-1][0]) if loops else ZERO
                out.append(replace(s, body=tuple(_of_one(x, turn, k.cluster, _extents(k, loops)) for x in inner)))
            case Steps(var=var, end=end):
                out.append(replace(s, body=_rewritten(s.body, k, slots, (*loops, (var, end)), ahead=ahead)))
            case Role(alone=alone):
                out.append(replace(s, body=_rewritten(s.body, k, slots, loops, ahead=alone)))
            case Guard():
                out.append(replace(s, body=_rewritten(s.body, k, slots, loops, ahead=ahead)))
            case _:
                out.append(s)
    return tuple(out)


def _of_one(s: Flat, turn: Expr, blocks: int, extents: Mapping[str, Expr]) -> Flat:
    """The loads of one block: of boxes that are shared those that are its own, for all. Where there are not as many for each
    block, blocks have one of them in turn."""
    return _owned(s, ZERO if _boxes(s) % blocks == 0 else turn, blocks, extents)


def _boxes(s: Flat) -> int:
    return (constant(s.end) or 1) * sum(map(_boxes, s.body)) if isinstance(s, Loop) else 1


def _owned(s: Flat, number: Expr, blocks: int, extents: Mapping[str, Expr]) -> Flat:
    if isinstance(s, Loop):
        inner, around = add(mul(number, s.end), Var(s.var)), {**extents, s.var: s.end}
        return replace(s, body=tuple(_owned(x, inner, blocks, around) for x in s.body))
    if isinstance(s, Collective) and s.tile is not None and _is_shared(s, s.tile, extents):
        mine = Compare("==", simplify(floormod(number, index(blocks)), {}), Var(CLUSTER))
        return If(mine, (replace(s, tile=replace(s.tile, blocks=(1 << blocks) - 1)),))
    return s
