"""`specialize`: assign the statements of a pipeline to groups of warps that run them side by side."""

from __future__ import annotations

from tensorc_dsl.ir.annotations import REGISTERS, ROLES, TEAMS, written_out
from tensorc_dsl.ir.program import PERSISTENT, For, LoopKind, Program
from tensorc_dsl.schedule.nests import NO_LOOP, the_loop, with_annotations
from tensorc_dsl.schedule.stale import private_between
from tensorc_dsl.schedule.step import LoopRef, Rewrite, primitive, refusal
from tensorc_dsl.syntax.format import quoted

_FEWEST, _MOST, _STEP = 24, 240, 8
"""The numbers of registers that a thread can ask for: `setmaxnreg` of PTX ISA 8.0, section 9.7.19."""


@refusal(
    "E0391",
    "`{loop}` is {kind}; roles are for the statements of a pipeline",
    help="use `software_pipeline({loop}, …)` first",
    at="loop",
)
def NOT_PIPELINED(*focus: str, loop: str, kind: str) -> None: ...
@refusal(
    "E0392",
    "{roles} are not the roles of the {count} statements of `{loop}`: {why}",
    help='give one role a statement, and at least two in all, e.g. ["producer", "consumer"]',
    at="roles",
    label="{why}",
)
def BAD_ROLES(*focus: str, roles: str, count: int, loop: str, why: str) -> None: ...
@refusal(
    "E0393",
    "{registers} are not the registers of the roles {roles}: {why}",
    help="give each role a multiple of 8 from 24 to 240",
    at="registers",
    label="{why}",
)
def BAD_REGISTERS(*focus: str, registers: object, roles: str, why: str) -> None: ...
@refusal(
    "E0394",
    "`{buffer}` is private to a thread, and passes from {first} to {second}",
    help='keep `{buffer}` in "shared", or give both statements one role',
    at="loop",
)
def NOT_SHARED(*focus: str, buffer: str, first: str, second: str, loop: str) -> None: ...


@refusal(
    "E0363",
    "{teams} teams cannot take turns around `{loop}`: {why}",
    help="use `persist` on a loop over blocks around `{loop}`, or leave `teams` out",
    at="teams",
    label="{why}",
)
def NO_TURNS(*focus: str, teams: int, loop: str, why: str) -> None: ...


@primitive(NO_LOOP, NOT_PIPELINED, BAD_ROLES, BAD_REGISTERS, NOT_SHARED, NO_TURNS)
def specialize(
    program: Program, loop: LoopRef, roles: tuple[str, ...], *, registers: tuple[int, ...] = (), teams: int = 1
) -> Rewrite[LoopRef]:
    """The statements of a pipelined loop have roles, which a GPU may run concurrently in separate warps.

    pipelined for i in n: {load; multiply}  ->  pipelined for i in n @("specialize.roles", "producer, consumer"): …

    `roles` names the role of each statement; `registers` is the number of registers that a thread of each role may have, in
    the order in which the roles appear. Data pass between roles in a buffer that both can access. On a GPU one role starts
    TMA loads ahead and the other one does everything else. So many `teams` of threads may have that role: they take the
    iterations of the persistent loop around in turn, so one multiplies while another one stores its results, and the order
    of iterations is free, as `persist` has it. A backend may also run all statements in one group of threads, as the CPU
    does. Known as warp specialization (Bauer et al., "CudaDMA", SC 2011), with teams as ping-pong scheduling (CUTLASS;
    Shah et al., "FlashAttention-3", 2024).  Cases: tests/primitives/specialize.md
    """
    around, target = the_loop(program, loop)
    name = target.var
    if target.kind is not LoopKind.PIPELINED:
        raise NOT_PIPELINED(program, name, loop=name, kind=target.kind)
    known = tuple(dict.fromkeys(roles))
    if why := _roles_problem(roles, len(target.body)):
        raise BAD_ROLES(
            program, name, roles=f"[{', '.join(map(quoted, roles))}]", count=len(target.body), loop=name, why=why
        )
    if registers and (why := _registers_problem(registers, len(known))):
        raise BAD_REGISTERS(program, name, registers=list(registers), roles=", ".join(known), why=why)
    if passing := private_between(program, target, roles):
        buffer, first, second = passing
        raise NOT_SHARED(program, name, buffer, buffer=buffer, loop=name, first=first, second=second)
    if why := _turns_problem(teams, around):
        raise NO_TURNS(program, name, teams=teams, loop=name, why=why)
    notes: dict[str, str | int] = {ROLES: ", ".join(roles)}
    if registers:
        notes[REGISTERS] = written_out(registers)
    if teams > 1:
        notes[TEAMS] = teams
    return Rewrite(with_annotations(program, target, notes), LoopRef(name))


def _roles_problem(roles: tuple[str, ...], count: int) -> str:
    if len(roles) != count:
        return f"there are {len(roles)}"
    for role in roles:
        if not role.isidentifier():
            return f'"{role}" is no name'
    return "" if len(set(roles)) > 1 else "all are one"


def _turns_problem(teams: int, around: tuple[For, ...]) -> str:
    if teams < 1:
        return "a role has one team or more"
    persistent = any((PERSISTENT, True) in x.annotations for x in around)
    return "" if persistent or teams == 1 else "no loop around it is persistent"


def _registers_problem(registers: tuple[int, ...], count: int) -> str:
    if len(registers) != count:
        return f"there are {len(registers)} for {count} roles"
    odd = [n for n in registers if n % _STEP or not _FEWEST <= n <= _MOST]
    return f"a thread cannot have {odd[0]}" if odd else ""
