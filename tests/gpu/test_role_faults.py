"""Seeded faults of roles: a slot that is released too early, by too few or never, another parity, another slot."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from tensorc_dsl.backend.cuda.emulation.statements import Threads
from tensorc_dsl.backend.cuda.lower import structure
from tensorc_dsl.backend.cuda.lower.kernels import (
    ArriveMbarrier,
    Device,
    Guard,
    InitMbarriers,
    Role,
    Steps,
    TmaLoad,
    WaitMbarrier,
    WgmmaWait,
)
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.lower.pipelines import versioned
from tensorc_dsl.ir.expr import add, index
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.lower.flat import Flat, LowerError
from tests.gpu.roles import exact, product, roles
from tests.gpu.tensor_cores import run
from tests.gpu.test_pipeline_faults import changed
from tests.gpu.test_tma import FEATURES, hand


def of_role(name: str, change: Callable[[Device], Device | None]) -> Callable[[Device], Device | None]:
    """The change in one role alone."""

    def go(body: tuple[Device, ...]) -> tuple[Device, ...]:
        out: list[Device] = []
        for s in body:
            s = replace(s, body=go(s.body)) if isinstance(s, Steps | Guard) else s
            new = change(s)
            out += [] if new is None else [new]
        return tuple(out)

    return lambda s: replace(s, body=go(s.body)) if isinstance(s, Role) and s.name == name else s


def removed(kind: type[Device]) -> Callable[[Device], Device | None]:
    return lambda s: None if isinstance(s, kind) else s


def awaited(more: int) -> Callable[[Device], Device]:
    """So many warps more at each mbarrier of warps."""
    return lambda s: (
        replace(s, awaited=tuple(n + more if n else 0 for n in s.awaited)) if isinstance(s, InitMbarriers) else s
    )


def first_slot(kind: type[WaitMbarrier | ArriveMbarrier]) -> Callable[[Device], Device]:
    """The mbarrier of the first of three slots in each round."""
    return lambda s: replace(s, at=index(3 if "3 +" in format_expr(s.at) else 0)) if isinstance(s, kind) else s


def early(s: Device) -> Device:
    """The slot is released before it is used."""
    if not isinstance(s, Steps) or not isinstance(s.body[-1], ArriveMbarrier):
        return s
    return replace(s, body=(s.body[0], s.body[-1], *s.body[1:-1]))


NEVER = r"waits at an mbarrier whose phase never completes"
HELD = r"starts a TMA load to shared memory that a warp may still read"
WAY = r"to which an asynchronous copy is in flight"
PHASES = r"in different phases of an mbarrier"

FAULTS: dict[str, tuple[Callable[[Device], Device | None], str]] = {
    "released before it is read": (early, rf"{HELD}|{WAY}"),
    "not released": (of_role("use", removed(ArriveMbarrier)), NEVER),
    "one slot released": (of_role("use", first_slot(ArriveMbarrier)), NEVER),
    "one warp too few": (awaited(-1), rf"{HELD}|{WAY}|{NEVER}|{PHASES}"),
    "one warp too many": (awaited(1), NEVER),
    "nobody waits for room": (of_role("fetch", removed(WaitMbarrier)), rf"{HELD}|{WAY}|{PHASES}"),
    "room of one slot": (of_role("fetch", first_slot(WaitMbarrier)), rf"{HELD}|{WAY}|{NEVER}|{PHASES}"),
    "nobody waits for bytes": (of_role("use", removed(WaitMbarrier)), rf"{HELD}|{WAY}"),
    "bytes of one slot": (of_role("use", first_slot(WaitMbarrier)), rf"{WAY}|{NEVER}"),
    "nothing is loaded": (of_role("fetch", removed(TmaLoad)), NEVER),
    "no role loads": (lambda s: None if isinstance(s, Role) and s.alone else s, NEVER),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", FAULTS)
def test_what_is_wrong_between_roles_is_found(case: str) -> None:
    change, said = FAULTS[case]
    program = hand(changes=roles(rounds=7))
    found = lower_device(program, FEATURES)
    fault, _ = run(program, changed(found, change))
    assert re.search(said, fault), fault


def at_once(s: Device) -> Device:
    """The slot of a round is released in it, while its products are under way."""
    if not isinstance(s, Steps) or not any(isinstance(x, WgmmaWait) for x in s.body):
        return s
    body = [x.body[0] if isinstance(x, Guard) else x for x in s.body]
    slot = next(x for x in body if isinstance(x, WaitMbarrier)).at
    return replace(
        s, body=tuple(replace(x, at=add(index(3), slot)) if isinstance(x, ArriveMbarrier) else x for x in body)
    )


def before_the_wait(s: Device) -> Device:
    """The slot of the round before is released before its products are waited for."""
    if not isinstance(s, Steps) or not any(isinstance(x, WgmmaWait) for x in s.body):
        return s
    return replace(s, body=(s.body[0], s.body[-1], *s.body[1:-1]))


BESIDE: dict[str, tuple[Callable[[Device], Device | None], str]] = {
    "released in its round": (of_role("consumer", at_once), rf"{HELD}|{WAY}|{NEVER}|{PHASES}"),
    "released before the wait": (of_role("consumer", before_the_wait), rf"{HELD}|{WAY}|{PHASES}"),
    "not released in the rounds": (
        of_role("consumer", lambda s: None if isinstance(s, Guard) and isinstance(s.body[0], ArriveMbarrier) else s),
        NEVER,
    ),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", BESIDE)
def test_what_is_released_while_products_read_it_is_found(case: str) -> None:
    change, said = BESIDE[case]
    program, found = product(128, 7, 2)
    fault, _ = exact(program, changed(found, change))
    assert re.search(said, fault), fault


@pytest.mark.corpus
@pytest.mark.parametrize("turned", [True, False])
def test_a_wrong_parity_of_room_is_found(turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one, which waits for a release before the first round, and always the one of the first round."""
    plain = Threads.await_phase

    def wrong(self: Threads, at: str, parity: str) -> None:
        if self.role is not None and self.role.alone:
            parity = self.f.op(f"xor i32 {parity}, 1") if turned else "1"
        plain(self, at, parity)

    monkeypatch.setattr(Threads, "await_phase", wrong)
    program = hand(changes=roles(rounds=7))
    fault, _ = run(program, lower_device(program, FEATURES))
    assert re.search(rf"{NEVER}|{HELD}|{WAY}|{PHASES}", fault), fault


def test_loads_that_may_come_to_what_is_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slots whose buffers have two versions."""

    def fewer(body: tuple[Flat, ...], buffer: str, var: str, count: int, size: int) -> tuple[Flat, ...]:
        return versioned(body, buffer, var, count - 1, size)

    monkeypatch.setattr(structure, "versioned", fewer)
    with pytest.raises(LowerError) as e:
        lower_device(hand(changes=roles()), FEATURES)
    assert str(e.value) == "a TMA load of `fetch` may write an element of `As` that `use` still reads; leave roles out"
