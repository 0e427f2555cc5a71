"""Runs the statements of a pipeline that copy tiles in a warp of their own, beside those that use what comes.

An iteration has a slot: the versions of the buffers that its tiles fill, and two mbarriers. The role that loads waits until
all warps have released the slot, and starts its tiles; the others wait for the bytes, use them, and release the slot. No
barrier is between the roles. Uses of one slot follow each other at its mbarriers. That tiles are never written to what
another slot holds is proved by integer sets, for all iterations and threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tensorc_dsl.backend.cuda.lower.barriers import Access, accesses
from tensorc_dsl.backend.cuda.lower.kernels import (
    BLOCK_AXES,
    THREAD,
    ArriveMbarrier,
    Device,
    Guard,
    Phase,
    Role,
    Steps,
    TmaLoad,
    WaitMbarrier,
    inside,
    roles_in,
    tma_loads_in,
)
from tensorc_dsl.backend.cuda.lower.pipelines import Part, Pipeline
from tensorc_dsl.backend.cuda.lower.shared_layout import targets_of
from tensorc_dsl.ir.expr import Compare, Expr, Var, add, floormod, index, loads, substitute
from tensorc_dsl.ir.warp import GROUP, LANES
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.proof.sets.sets import NotAffine, affine_only, feasible
from tensorc_dsl.proof.sets.simplify import conjuncts

REGISTERS = 1 << 16
"""The registers of a multiprocessor that has `setmaxnreg`. CUDA C++ Programming Guide, "Technical Specifications"."""

_MOST, _LATER, _STEP = 255, 240, 8
"""The most registers of a thread, the most that it can take later, and what their number is a multiple of then."""


class NoRoles(Exception):
    """Why all threads run all statements of a pipeline."""


def in_roles(
    var: str,
    end: Expr,
    pipeline: Pipeline,
    parts: Mapping[int, Part],
    threads: int,
    mbarriers: Callable[[int, int], int],
) -> tuple[Role, Role]:
    """The pipeline of the loop `var` as two roles, the one that loads first; `threads` run the other one. `mbarriers` gives
    the first of so many new mbarriers, for bytes or for so many warps. Raises NoRoles."""
    names = tuple(dict.fromkeys(pipeline.roles))
    loading = tuple(n for n, part in parts.items() if part.tiles is not None)
    used = tuple(sorted((n for n in parts if n not in loading), key=pipeline.order.__getitem__))
    loading_roles, other_roles = ({pipeline.roles[n] for n in some} for some in (loading, used))
    if len(names) != 2 or len(loading_roles) != 1 or len(other_roles) != 1 or loading_roles == other_roles:
        raise NoRoles(
            "one role has to start TMA loads that run ahead and nothing else, and a second one all other statements"
        )
    if any(len({pipeline.stages[n] for n in some}) != 1 for some in (loading, used)):
        raise NoRoles("the statements of a role have different stages")
    if any(parts[n].copies is not None for n in used):
        raise NoRoles("threads copy ahead, too")
    tiles = [x for n in loading if (x := parts[n].tiles) is not None]
    counts = {pipeline.versions[b] for x in tiles for b in targets_of(x.body)}
    if len(counts) != 1:
        raise NoRoles("its buffers have different numbers of versions")
    if threads % LANES:
        raise NoRoles(f"its {threads} threads are no whole warps")
    (count,) = counts
    registers = dict(zip(names, pipeline.registers or (0, 0), strict=True))
    if pipeline.registers and threads % GROUP:
        raise LowerError(
            f"the {threads} threads of `{var}` are no whole warpgroups, which change their registers together"
        )
    full, room = mbarriers(count, 0), mbarriers(count, threads // LANES)
    slot = floormod(Var(var), index(count))
    producer = TmaLoad(add(index(full), slot), sum(x.size for x in tiles), tuple(s for x in tiles for s in x.body))
    body = tuple(s for n in used for s in parts[n].body)
    own, theirs = pipeline.roles[loading[0]], pipeline.roles[used[0]]
    free = add(index(room), slot)
    return (
        Role(
            own,
            threads,
            GROUP if pipeline.registers else LANES,
            registers[own],
            True,
            (Steps(var, end, (WaitMbarrier(free), producer)),),
        ),
        Role(
            theirs,
            0,
            threads,
            registers[theirs],
            False,
            (Steps(var, end, (WaitMbarrier(producer.at), *body, ArriveMbarrier(free, count))),),
        ),
    )


def lifted(body: tuple[Device, ...], grid: Sequence[Expr]) -> tuple[Device, ...]:
    """The statements of a kernel with each role as a whole: the one that loads has the loops around its tiles alone, and
    the other one all else. Raises LowerError if what one loads may meet what the other still reads, or registers do not
    add up."""
    found = [s for s in inside(body) if isinstance(s, Role)]
    if not found:
        return body
    producer, consumer = (replace(s, body=_of_role(body, s.name, not s.alone)) for s in found)
    for s in inside(producer.body):
        told = [s.cond] if isinstance(s, Guard) else [s.end] if isinstance(s, Steps) else []
        if any(loads(e) for e in told):
            raise LowerError(
                f"when `{producer.name}` loads depends on an array, which `{consumer.name}` may write; leave roles out"
            )
    _require_registers(producer, consumer)
    _require_apart(producer, consumer, grid)
    return (producer, consumer)


def _of_role(body: tuple[Device, ...], name: str, others: bool) -> tuple[Device, ...]:
    """The statements of a role, in the loops and conditions around it; those of no role if it runs the `others`, too."""
    out: list[Device] = []
    for s in body:
        if isinstance(s, Role):
            out += s.body if s.name == name else ()
        elif isinstance(s, Steps | Guard):
            inner = _of_role(s.body, name, others)
            out += [replace(s, body=inner)] if inner else []
        elif others:
            out.append(s)
    return tuple(out)


def threads_of(body: tuple[Device, ...], threads: int) -> int:
    """The threads of a block, with those of all roles."""
    return sum(s.threads for s in roles_in(body)) or threads


def first_registers(threads: int) -> int:
    """The registers of each of so many threads as they begin, where their number changes later."""
    most = REGISTERS // threads
    return _MOST if most > _MOST else most // _STEP * _STEP


def _require_registers(producer: Role, consumer: Role) -> None:
    if not producer.registers:
        return
    threads = producer.threads + consumer.threads
    first = first_registers(threads)
    total, most = producer.registers * producer.threads + consumer.registers * consumer.threads, first * threads
    if not producer.registers <= first <= consumer.registers or total > most:
        fits = min(_LATER, (most - producer.registers * producer.threads) // consumer.threads // _STEP * _STEP)
        repair = (
            f"give `{consumer.name}` {first} to {fits}" if first <= fits else "leave `registers` out, or give others"
        )
        raise LowerError(
            f"{producer.registers} registers for each of {producer.threads} threads of `{producer.name}` and"
            f" {consumer.registers} for each of {consumer.threads} of `{consumer.name}` do not add up: all begin with"
            f" {first}, {most} together, which a thread of `{producer.name}` gives and one of"
            f" `{consumer.name}` takes; {repair}"
        )


@dataclass(frozen=True, slots=True)
class _Use:
    """An access to what tiles fill, and the mbarrier at which its slot is free; the loops around are those of `access`."""

    access: Access
    at: Expr


def _require_apart(producer: Role, consumer: Role, grid: Sequence[Expr]) -> None:
    """Raises LowerError if a tile may be written to an element that is used with another slot."""
    targets = {b for s in tma_loads_in(producer.body) for b in targets_of(s.body)}
    extents = (*zip(BLOCK_AXES, grid, strict=True), (THREAD, index(consumer.threads)))
    used = list(_uses(consumer.body, targets, (), None))
    for a in _loaded(producer.body, (), (), None):
        for b in used:
            if a.access.buffer == b.access.buffer and _meet(a, b, dict(extents)):
                raise LowerError(
                    f"a TMA load of `{producer.name}` may write an element of `{a.access.buffer}` that"
                    f" `{consumer.name}` still reads; leave roles out"
                )


def _loaded(
    body: tuple[Device, ...], loops: tuple[tuple[str, Expr], ...], conds: tuple[Expr, ...], at: Expr | None
) -> Iterator[_Use]:
    for s in body:
        match s:
            case WaitMbarrier():
                at = s.at
            case TmaLoad(body=inner) if at is not None:
                for a in accesses(inner, ()):
                    if a.write:
                        yield _Use(replace(a, loops=(*loops, *a.loops), conds=(*conds, *a.conds)), at)
            case Steps(var=var, end=end, body=inner):
                yield from _loaded(inner, (*loops, (var, end)), conds, at)
            case Guard(cond=cond, body=inner):
                yield from _loaded(inner, loops, (*conds, *conjuncts(cond)), at)
            case _:
                raise AssertionError("a role that loads does nothing else")


def _uses(
    body: tuple[Device, ...], targets: set[str], loops: tuple[tuple[str, Expr], ...], at: Expr | None
) -> Iterator[_Use]:
    at = next((s.at for s in body if isinstance(s, ArriveMbarrier)), at)
    for s in body:
        match s:
            case Phase(body=inner):
                for a in accesses(inner, ()):
                    if a.buffer in targets:
                        assert at is not None  # the buffers of an iteration are known in it alone
                        yield _Use(replace(a, loops=(*loops, *a.loops)), at)
            case Steps(var=var, end=end, body=inner):
                yield from _uses(inner, targets, (*loops, (var, end)), at)
            case Guard(body=inner):
                yield from _uses(inner, targets, loops, at)
            case _:
                pass


def _meet(a: _Use, b: _Use, extents: dict[str, Expr]) -> bool:
    """Whether an element may be both, for different slots."""
    names = {v: Var(f"{v}'") for v, _ in a.access.loops}
    extents |= {f"{v}'": substitute(e, names) for v, e in a.access.loops}
    extents |= dict(b.access.loops)
    conds = (
        Compare("==", substitute(a.access.index, names), b.access.index),
        Compare("!=", substitute(a.at, names), b.at),
        *(substitute(c, names) for c in a.access.conds),
        *b.access.conds,
    )
    try:
        return feasible(extents, affine_only(conds))
    except NotAffine:
        return True
