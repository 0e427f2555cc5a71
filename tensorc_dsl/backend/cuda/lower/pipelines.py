"""Runs a pipeline in rounds, or in roles: several of its iterations are under way at one time.

In each round every statement runs for the iteration that has reached its stage. Statements of the last stage run in a loop
over its iterations, as before. Those of a stage further ahead run in it for a later iteration, if there is one, and before
the loop for the first iterations. A buffer that is private to an iteration has a version for each iteration that needs one at
the same time, and the iteration counts which.

Copies that a round starts are groups, the same number in each round. A round waits for the groups from which its statements
read: as it begins if these are from earlier rounds, so that one barrier behind the wait serves what is read and what is
overwritten.

With roles, the statements that copy tiles run in a warp of their own, beside those that use what comes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from tensorc_dsl.backend.cuda.lower.async_copies import unnumbered_mbarrier
from tensorc_dsl.backend.cuda.lower.collectives import is_of_group
from tensorc_dsl.backend.cuda.lower.kernels import (
    THREAD,
    ArriveMbarrier,
    CommitGroup,
    Device,
    Guard,
    Nested,
    Phase,
    Role,
    Steps,
    TmaLoad,
    TmaStore,
    WaitGroup,
    WaitMbarrier,
    collectives_in,
    inside,
    of_thread,
    plain,
    roles_in,
    stores_in,
    with_buffers,
    with_values,
)
from tensorc_dsl.backend.cuda.lower.shared_layout import targets_of
from tensorc_dsl.backend.cuda.lower.synchronization import BEFORE, Access, accesses, may_meet, placed
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.annotations import ASYNC, REGISTERS, pipeline, read_back, roles, teams
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Compare,
    Expr,
    Load,
    Var,
    add,
    conjunction,
    floordiv,
    floormod,
    index,
    loads,
    mul,
    rewrite_expr,
    sub,
    substitute,
)
from tensorc_dsl.ir.program import For, LoopKind, Program, Stmt, Store, fresh, used_names, walk, with_body
from tensorc_dsl.ir.warp import GROUP, LANES
from tensorc_dsl.lower.flat import Flat, If, LowerError, buffers_of, stores
from tensorc_dsl.proof.sets.dependence import versions
from tensorc_dsl.proof.sets.simplify import prove, simplify

# Finds the pipelines that a kernel can run with several iterations at one time, and marks their statements.


@frozen
class Pipeline:
    """The statements of a pipelined loop by number: the stage of each, which comes first in a round, which stages only
    start their copies. `versions` has the copies that each buffer needs that is private to an iteration, `marks` the
    variables of the loops of one iteration around the statements. `roles` has the role of each statement, and
    `registers` those of a thread of each role, in their order; both are empty if the schedule does not say so. So many
    `teams` of threads have the last role."""

    stages: tuple[int, ...]
    order: tuple[int, ...]
    asynchronous: frozenset[int]
    versions: Mapping[str, int]
    marks: tuple[str, ...]
    roles: tuple[str, ...] = ()
    registers: tuple[int, ...] = ()
    teams: int = 1

    @property
    def last(self) -> int:
        return max(self.stages)


def marked(program: Program) -> tuple[Program, dict[str, Pipeline]]:
    """The program with a loop of one iteration around each statement of its pipelines, and these, by their loops.

    A pipeline inside of threads has none: what a thread does for itself, it does in order.
    """
    found: dict[str, Pipeline] = {}
    used = used_names(program)

    def go(s: Stmt, threads: bool) -> Stmt:
        if not isinstance(s, For):
            return s
        inside = threads or _counts_threads(s)
        body = tuple(go(x, inside) for x in s.body)
        stages = pipeline(s) if s.kind is LoopKind.PIPELINED else None
        if stages is None or inside or not any(isinstance(x, For) and _counts_threads(x) for _, x in walk(s.body)):
            return with_body(s, body)
        copies = {b.name: versions(s, b) for b in program.buffers}
        marks = tuple(fresh(f"{s.var}_part", used) for _ in body)
        started = frozenset(read_back(s, ASYNC) or ())
        own = roles(s), read_back(s, REGISTERS) or (), teams(s)
        found[s.var] = Pipeline(*stages, started, copies, marks, *own)
        return with_body(s, tuple(For(name, ONE, (x,)) for name, x in zip(marks, body, strict=True)))

    return replace(program, body=tuple(go(s, False) for s in program.body)), found


def _counts_threads(loop: For) -> bool:
    return loop.axis is not None and loop.axis.counts_threads


@frozen
class Part:
    """A statement of a pipeline: what all threads do for one iteration, and, if it only starts copies, these: of threads, or
    of tiles."""

    body: tuple[Device, ...]
    copies: tuple[Flat, ...] | None
    tiles: TmaLoad | None = None


def versioned(body: tuple[Flat, ...], buffer: str, var: str, count: int, size: int) -> tuple[Flat, ...]:
    """The statements with `count` versions of a buffer, each of `size` elements: iteration i of loop `var` has i % count."""
    first = mul(floormod(Var(var), index(count)), index(size))

    def place(e: Expr) -> Expr:
        return add(first, simplify(e, {}))

    def expr(e: Expr) -> Expr:
        return Load(buffer, (place(e.indices[0]),), e.dtype) if isinstance(e, Load) and e.buffer == buffer else e

    def stmt(s: Flat) -> Flat:
        if not isinstance(s, Store):
            return replace(s, body=tuple(map(stmt, s.body)))
        if buffer not in buffers_of(s):
            return s
        indices = tuple(rewrite_expr(i, expr) for i in s.indices)
        indices = (place(indices[0]),) if s.buffer == buffer else indices
        return replace(s, indices=indices, value=rewrite_expr(s.value, expr))

    return tuple(map(stmt, body)) if count > 1 else body


def in_rounds(
    var: str, end: Expr, pipeline: Pipeline, parts: Mapping[int, Part], mbarriers: Callable[[int, int], int]
) -> tuple[Device, ...]:
    """The rounds of the pipeline of the loop `var`. Each part is over `var`, the iteration that it runs for. `mbarriers`
    gives the first of so many new ones, here for bytes."""
    last = max(pipeline.stages[n] for n in parts)
    trips = tuple(_trip(run, pipeline, parts, mbarriers) for run in _adjacent(pipeline, parts))
    r = _Rounds(end, pipeline, last, parts, trips)
    number = add(Var(var), index(last))
    if r.before_last:  # instructions that run beside the threads stand under no condition
        most, some = sub(end, ONE), Compare(">", end, ZERO)
        first = tuple(x for n in range(last) for x in r.round(var, index(n), "first"))
        after = with_values(tuple(r.round(var, number, "last")), {var: most})
        own = (*first, Steps(var, most, tuple(r.round(var, number, "but_last"))), *after)
        return own if prove(some, {}) else (Guard(some, own),)
    first = Steps(f"{var}.first", index(last), tuple(r.round(var, Var(f"{var}.first"), "first")))
    main = Steps(var, end, tuple(r.round(var, number, "every")))
    match last:
        case 0:
            return (main,)
        case 1:
            return (*with_values(first.body, {first.var: ZERO}), main)
        case _:
            return (first, main)


@frozen
class _Trip:
    """Adjacent parts of one stage that start TMA loads with one mbarrier, and the part that waits for it: the
    first that uses them. Iteration i has the mbarrier `first` + i % `count`."""

    parts: tuple[int, ...]
    waits: int
    first: int
    count: int

    def at(self, iteration: Expr) -> Expr:
        return add(index(self.first), floormod(iteration, index(self.count)))


def _adjacent(pipeline: Pipeline, parts: Mapping[int, Part]) -> list[tuple[int, ...]]:
    """The parts that start TMA loads; those of one stage that follow each other are together."""
    out: list[tuple[int, ...]] = []
    every = sorted(parts, key=pipeline.order.__getitem__)
    for before, n in pairwise([-1, *every]):
        if parts[n].tiles is not None:
            if out and before == out[-1][-1] and pipeline.stages[before] == pipeline.stages[n]:
                out[-1] = (*out[-1], n)
            else:
                out.append((n,))
    return out


def _trip(
    run: tuple[int, ...], pipeline: Pipeline, parts: Mapping[int, Part], mbarriers: Callable[[int, int], int]
) -> _Trip:
    targets = {s.buffer for n in run for s in stores(of_thread(parts[n].body))}
    users = [n for n in parts if n not in run and not targets.isdisjoint(_used(parts[n]))]
    count = max((pipeline.versions[b] for b in targets), default=1)
    waits = min(users, key=lambda n: (pipeline.stages[n], pipeline.order[n]), default=run[-1])
    return _Trip(run, waits, mbarriers(count, 0), count)


def _used(part: Part) -> set[str]:
    return {x for s in stores(of_thread(part.body)) for x in buffers_of(s)}


Which = Literal["first", "every", "but_last", "last"]
"""The rounds before the loop, those of a loop over all iterations, or of one over all but the last, and the last round."""


@frozen
class _Rounds:
    end: Expr
    pipeline: Pipeline
    last: int
    """The last stage of these parts."""
    parts: Mapping[int, Part]
    trips: tuple[_Trip, ...]

    @property
    def before_last(self) -> frozenset[int]:
        """The parts of the stage before the last one, if products of warpgroups are among them and no copies."""
        stage = frozenset(n for n in self.parts if self.pipeline.stages[n] == self.last - 1)
        if any(self.parts[n].copies is not None or self.parts[n].tiles is not None for n in stage):
            return frozenset()
        every = (s for n in stage for s in collectives_in(self.parts[n].body))
        return stage if any(is_of_group(s.intrinsic) for s in every) else frozenset()

    def round(self, var: str, number: Expr, which: Which) -> Iterator[Device]:
        """What threads do in the round of a number: before the loop the last stage has no iteration yet, and in the last
        round it alone has one."""
        groups, stages, every = self._groups(), self.pipeline.stages, sum(starts for starts, _ in self._runs())
        early = [(n, p) for n, p in self._reads(which) if stages[n] > stages[p]]
        if early:
            count = min((every - 1 - groups[p]) + (stages[n] - stages[p] - 1) * every for n, p in early)
            yield WaitGroup(count, tuple(x for n, p in early for x in self._landed(p, var, self._iteration(n, number))))
        done = 0
        for starts, run in self._runs():
            for n in run:
                late = [p for m, p in self._reads(which) if m == n and stages[m] == stages[p]]
                if late:
                    at = self._iteration(n, number)
                    landed = tuple(x for p in late for x in self._landed(p, var, at))
                    yield WaitGroup(min(done - 1 - groups[p] for p in late), landed)
                if self._has_some(n, which):
                    for t in self.trips:
                        if t.waits == n:
                            at = self._iteration(n, number)
                            yield from self._within(n, var, number, which, (WaitMbarrier(simplify(t.at(at), {})),))
                    yield from self._run(n, var, number, which)
            if starts:
                done += 1
                yield CommitGroup()

    def _has_some(self, n: int, which: Which) -> bool:
        """Whether a part has iterations in such a round."""
        match which:
            case "first":
                return self.pipeline.stages[n] < self.last
            case "last":
                return self.pipeline.stages[n] == self.last
            case _:
                return True

    def _runs(self) -> list[tuple[bool, list[int]]]:
        """The parts in the order of a round; adjacent ones that start copies are together, and all others are alone."""
        out: list[tuple[bool, list[int]]] = []
        for n in sorted(self.parts, key=self.pipeline.order.__getitem__):
            starts = self.parts[n].copies is not None
            if starts and out and out[-1][0]:
                out[-1][1].append(n)
            else:
                out.append((starts, [n]))
        return out

    def _groups(self) -> dict[int, int]:
        """Of each part that starts copies the number of its group in a round."""
        runs = [run for starts, run in self._runs() if starts]
        return {n: g for g, run in enumerate(runs) for n in run}

    def _reads(self, which: Which) -> list[tuple[int, int]]:
        """The parts of a round that use what others copy, with these."""
        out: list[tuple[int, int]] = []
        for n, part in self.parts.items():
            if part.copies is None and self._has_some(n, which):
                used = {x for s in stores(of_thread(part.body)) for x in buffers_of(s)}
                for p, other in self.parts.items():
                    if other.copies is not None and used & {s.buffer for s in stores(other.copies)}:
                        out.append((n, p))
        return out

    def _iteration(self, n: int, number: Expr) -> Expr:
        """The iteration for which a part runs in a round."""
        return simplify(sub(number, index(self.pipeline.stages[n])), {})

    def _landed(self, n: int, var: str, iteration: Expr) -> tuple[Flat, ...]:
        copies = self.parts[n].copies
        assert copies is not None  # only for parts that start copies
        return plain(copies, {var: iteration})

    def _run(self, n: int, var: str, number: Expr, which: Which) -> Iterator[Device]:
        """A part, if its iteration is one of the loop's. Of parts whose tiles have one mbarrier the first starts all."""
        part, at = self.parts[n], self._iteration(n, number)
        body: tuple[Device, ...] = part.body if part.copies is None else (Phase(part.copies, asynchronous=True),)
        if part.tiles is not None:
            (trip,) = (t for t in self.trips if n in t.parts)
            every = [x for x in (self.parts[m].tiles for m in trip.parts) if x is not None]
            together = TmaLoad(trip.at(Var(var)), sum(x.size for x in every), tuple(s for x in every for s in x.body))
            body = (together,) if n == trip.parts[0] else ()
        yield from self._within(n, var, number, which, with_values(body, {var: at}))

    def _within(self, n: int, var: str, number: Expr, which: Which, body: tuple[Device, ...]) -> tuple[Device, ...]:
        """Statements for the iteration that a part runs for, if it is one of the loop's."""
        at = self._iteration(n, number)
        limits = [Compare(">=", at, ZERO), Compare("<", at, self.end)]
        if which == "first":
            known = {f"{var}.first": (0, self.last - 1)}
            if prove(limits[0], known) is False:
                return ()
            conds = [
                c for c in limits if prove(c, known) is not True and not (n in self.before_last and c == limits[1])
            ]
        else:
            decided = self.pipeline.stages[n] == self.last or n in self.before_last
            conds = [] if decided else limits[1:]
        return _guarded(conjunction(tuple(conds)), body)


def _guarded(cond: Expr | None, body: tuple[Device, ...]) -> tuple[Device, ...]:
    """The statements under a condition that is the same for all threads: inside of phases, if there is nothing else."""
    if cond is None or not body:
        return body
    if all(isinstance(s, Phase) for s in body):
        return tuple(replace(s, body=(If(cond, s.body),)) for s in body if isinstance(s, Phase))
    return (Guard(cond, body),)


# Roles: the statements of a pipeline that copy tiles run in a warp of their own, beside those that use what comes.
#
# An iteration has a slot: the versions of the buffers that its tiles fill, and two mbarriers. The role that loads waits until
# all warps have released the slot, and starts its tiles; the others wait for the bytes, use them, and release the slot. No
# barrier is between the roles. Uses of one slot follow each other at its mbarriers. That tiles are never written to what
# another slot holds is proved by integer sets, for all iterations and threads.
#
# Several teams may have the role that uses the tiles (ping-pong, as in CUTLASS): each takes iterations of the loop over what
# a block does, in turn, so one team multiplies while another one stores its results. A slot has an mbarrier for the bytes of
# each team, since a team does not see the phases of others. Mbarriers of teams say whose products are next: without them two
# teams would have half of the tensor cores each, and store at the same time.


TEAM = "role.team"
"""The variable that counts the teams that take turns, until each has its statements. No name of a program has a dot."""


REGISTER_FILE = 1 << 16
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
    spans = [{pipeline.stages[n] for n in some} for some in (loading, used)]
    if len(spans[0]) != 1 or max(spans[1]) - min(spans[1]) > 1:
        raise NoRoles("its loads have different stages, or the other statements more than two")
    if any(parts[n].copies is not None for n in used):
        raise NoRoles("threads copy ahead, too")
    tiles = [x for n in loading if (x := parts[n].tiles) is not None]
    counts = {pipeline.versions[b] for x in tiles for b in targets_of(x.body)}
    if len(counts) != 1:
        raise NoRoles("its buffers have different numbers of versions")
    if threads % LANES:
        raise NoRoles(f"its {threads} threads are no whole warps")
    (count,) = counts
    many = pipeline.teams
    registers = dict(zip(names, pipeline.registers or (0, 0), strict=True))
    if pipeline.registers and threads % GROUP:
        raise LowerError(
            f"the {threads} threads of `{var}` are no whole warpgroups, which change their registers together"
        )
    warps = threads // LANES
    full, room = mbarriers(count * many, 0), mbarriers(count, warps)
    slot = floormod(Var(var), index(count))
    mine = slot if many == 1 else add(mul(Var(TEAM), index(count)), slot)
    producer = TmaLoad(add(index(full), mine), sum(x.size for x in tiles), tuple(s for x in tiles for s in x.body))
    own, theirs = pipeline.roles[loading[0]], pipeline.roles[used[0]]
    free = add(index(room), slot)
    loads = Steps(var, end, (WaitMbarrier(free), producer))
    users = {n: Part(parts[n].body, None) for n in used}
    last = max((n for n in used if pipeline.stages[n] == max(spans[1])), key=pipeline.order.__getitem__)
    users[last] = Part((*users[last].body, ArriveMbarrier(free, count)), None)
    first = next(n for n in used if pipeline.stages[n] == min(spans[1]))
    users[first] = Part((WaitMbarrier(producer.at), *users[first].body), None)
    stages = tuple(n - min(spans[1]) for n in pipeline.stages)
    uses = in_rounds(var, end, replace(pipeline, stages=stages), users, mbarriers)
    if many > 1:
        turn = mbarriers(1, warps)
        mbarriers(many - 1, -warps)  # the first team has the first turn
        follower = floormod(add(Var(TEAM), ONE), index(many))
        uses = (
            WaitMbarrier(add(index(turn), Var(TEAM))),
            *uses,
            ArriveMbarrier(add(index(turn), follower), 0),
        )
    return (
        Role(own, many * threads, GROUP if pipeline.registers else LANES, registers[own], True, (loads,)),
        Role(theirs, 0, threads, registers[theirs], False, uses),
    )


def lifted(
    body: tuple[Device, ...],
    blocks: Mapping[str, Expr],
    many: int,
    again: Callable[[str, str], None],
    shared: Collection[str],
) -> tuple[Device, ...]:
    """The statements of a kernel with each role as a whole: the one that loads has the loops around its tiles alone, and
    the other one all else, as so `many` teams. `again` gives one of the `shared` buffers a second place under another name.
    Raises LowerError if what one loads may meet what the other still reads, or registers do not add up."""
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
    _require_registers(producer, consumer, many)
    if many == 1:
        _require_apart(producer, consumer, blocks)
        return (producer, consumer)
    producer, *teams = _in_turn(producer, consumer, many)
    loaded = {s.buffer for s in stores_in(producer.body)}
    for n, team in enumerate(teams):
        _require_apart(producer, team, blocks)
        own = _buffers_of_role(team.body) & set(shared) - loaded if n else set[str]()
        names = {name: f"{name}.{n}" for name in sorted(own)}
        for name, other in names.items():
            again(name, other)
        waited = {unnumbered_mbarrier(name): Var(unnumbered_mbarrier(other)) for name, other in names.items()}
        teams[n] = replace(team, body=with_values(with_buffers(team.body, names), waited))
    return (producer, *teams)


def _buffers_of_role(body: tuple[Device, ...]) -> set[str]:
    """The buffers that statements of a role access."""
    every = (s.body for s in inside(body) if isinstance(s, Phase | TmaLoad | TmaStore))
    return {name for flat in every for s in stores(flat) for name in buffers_of(s)}


def _in_turn(producer: Role, consumer: Role, many: int) -> tuple[Role, ...]:
    """The role that loads for so many teams, and these: team n takes iterations n, n + `many`, … of the loop around all
    that a block does. Raises LowerError if there is none, or a team may have nothing to do where it is its turn."""
    loops = [role.body[0] for role in (producer, consumer) if len(role.body) == 1]
    if len(loops) != 2 or not all(isinstance(s, Steps) for s in loops):
        raise LowerError(
            f"teams of `{consumer.name}` take iterations of a persistent loop in turn, and the kernel has statements outside"
            " of it; leave `teams` out"
        )
    if any(isinstance(s, TmaLoad) and not isinstance(s.at, Var) for s in inside(consumer.body)):
        raise LowerError(
            f"teams of `{consumer.name}` would wait for TMA loads of their own at the same mbarriers; leave `teams` out, or"
            " copy by threads"
        )
    first, loop = (s for s in loops if isinstance(s, Steps))
    _require_turns(loop, consumer.name)
    var, count = Var(loop.var), index(many)
    out = [replace(producer, body=(replace(first, body=with_values(first.body, {TEAM: floormod(var, count)})),))]
    for n in range(many):
        values = {TEAM: index(n), loop.var: add(mul(var, count), index(n))}
        end = simplify(floordiv(add(loop.end, index(many - 1 - n)), count), {})
        own = replace(loop, end=end, body=_numbered(with_values(loop.body, values)))
        out.append(replace(consumer, name=f"{consumer.name}.{n}", first=n * consumer.threads, body=(own,)))
    return tuple(out)


def _numbered(body: tuple[Device, ...]) -> tuple[Device, ...]:
    """The statements with the simplest numbers of their mbarriers."""
    out: list[Device] = []
    for s in body:
        if isinstance(s, Steps | Guard):
            s = replace(s, body=_numbered(s.body))
        elif isinstance(s, WaitMbarrier | ArriveMbarrier):
            s = replace(s, at=simplify(s.at, {}))
        out.append(s)
    return tuple(out)


def _require_turns(loop: Steps, name: str) -> None:
    """Raises LowerError unless a team has products in each of its iterations of the loop, or in none from one of them on."""
    body, later = loop.body, {loop.var: add(Var(loop.var), ONE)}
    while not any(map(_hands_on, body)):
        (s,) = (s for s in body if isinstance(s, Nested) and any(map(_hands_on, inside(s.body))))
        if not isinstance(s, Guard) or not _stays_false(s.cond, later):
            raise LowerError(
                f"teams of `{name}` take the iterations of `{loop.var}` in turn, and"
                f" {'several tiles are' if isinstance(s, Steps) else 'none may be'} computed in one; leave `teams` out"
            )
        body = s.body


def _hands_on(s: Device) -> bool:
    return isinstance(s, ArriveMbarrier) and not s.slots


def _stays_false(cond: Expr, later: Mapping[str, Expr]) -> bool:
    """Whether a condition that does not hold in an iteration holds in no later one: the same, or a number that grows is below
    a limit."""
    if not isinstance(cond, Compare) or cond.op != "<":
        return substitute(cond, later) == cond
    lhs, rhs = (sub(substitute(e, later), e) for e in (cond.lhs, cond.rhs))
    return prove(Compare(">=", sub(lhs, rhs), ZERO), {}) is True


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
    most = REGISTER_FILE // threads
    return _MOST if most > _MOST else most // _STEP * _STEP


def _require_registers(producer: Role, consumer: Role, many: int) -> None:
    if not producer.registers:
        return
    takers = many * consumer.threads
    threads = producer.threads + takers
    first = first_registers(threads)
    total, most = producer.registers * producer.threads + consumer.registers * takers, first * threads
    if not producer.registers <= first <= consumer.registers or total > most:
        fits = min(_LATER, (most - producer.registers * producer.threads) // takers // _STEP * _STEP)
        repair = (
            f"give `{consumer.name}` {first} to {fits}" if first <= fits else "leave `registers` out, or give others"
        )
        raise LowerError(
            f"{producer.registers} registers for each of {producer.threads} threads of `{producer.name}` and"
            f" {consumer.registers} for each of {takers} of `{consumer.name}` do not add up: all begin with"
            f" {first}, {most} together, which a thread of `{producer.name}` gives and one of"
            f" `{consumer.name}` takes; {repair}"
        )


def _require_apart(producer: Role, consumer: Role, blocks: Mapping[str, Expr]) -> None:
    """Raises LowerError if a tile may be written to an element that is used with another slot."""
    extents = {**blocks, THREAD: index(consumer.threads)}
    used = list(_in_slots(consumer.body))
    at = next(s.at for s in inside(consumer.body) if isinstance(s, ArriveMbarrier) and s.slots)
    for s, loops, conds in placed(producer.body):
        if isinstance(s, TmaLoad):
            slot = substitute(at, {v: Var(v + BEFORE) for v, _ in loops})
            for a in accesses(s.body, ()):
                filled = a.inside(loops, conds)
                others = (x for x in used if a.write and x[0].buffer == a.buffer)
                if any(may_meet(filled, b, extents, [Compare("!=", slot, n) for n in held]) for b, held in others):
                    raise LowerError(
                        f"a TMA load of `{producer.name}` may write an element of `{a.buffer}` that"
                        f" `{consumer.name}` still reads; leave roles out"
                    )


def _in_slots(body: tuple[Device, ...]) -> Iterator[tuple[Access, tuple[Expr, ...]]]:
    """The accesses of the role that uses tiles, each with the mbarriers of the slots that it has there: of one iteration, or
    in rounds of two stages of two, before these of the first, and behind them of the last."""
    every = list(placed(body))
    released = [n for n, (s, _, _) in enumerate(every) if isinstance(s, ArriveMbarrier) and s.slots]
    _, around, _ = every[released[0]]
    ats = [s.at for s, _, _ in every if isinstance(s, ArriveMbarrier) and s.slots]
    for n, (s, loops, conds) in enumerate(every):
        if isinstance(s, Phase):
            held: tuple[Expr, ...] = (ats[0],)
            if len(ats) > 1:
                var = around[-1][0]
                if loops[: len(around)] == around:
                    held = (ats[0], substitute(ats[0], {var: add(Var(var), ONE)}))
                else:
                    held = (substitute(ats[0], {var: ZERO}) if n < released[0] else ats[1],)
            for a in accesses(s.body, ()):
                yield a.inside(loops, conds), held
