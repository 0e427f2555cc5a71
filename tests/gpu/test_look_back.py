"""Scans whose value blocks pass on: exact in each order of blocks, and each fault of the protocol is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tensorc_dsl.api import Task, loads
from tensorc_dsl.backend.cuda import residents
from tensorc_dsl.backend.cuda.codegen.look_back import ADDS, Looking
from tensorc_dsl.backend.cuda.codegen.threads import Threads
from tensorc_dsl.backend.cuda.emulate import emulation
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram, LookBack, Ticket
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.memory import aligned_copy, aligned_empty
from tensorc_dsl.backend.protocol import ORDERS
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.expr import ONE, ZERO, Compare, add, conjunction, floormod, index

STEPS = """
compute sums(X: T[N]; T: dtype) -> Y: T[N] { Y[t] = scan[t] init X[0] step Y[t - 1] + X[t] }
schedule by_hand for sums {
    let [part, carry] = split_scan(Y, 4)
    split(Y.loops[0], [_, 4], partial=true)
    merge(carry.loops[0], Y.loops[0], partial=true)
    look_back(carry)
    compute_at(part, Y.loops[0])
    set_scope(part.writes[0], "shared")
    bind(Y.loops[1], "thread.x")
    bind(Y.loops[0], "block.x")
}
"""
STEPS_OF, N = {"packed": "i32", "released": "i64"}, 61
"""A value that is in one word with its flag, and one that is behind a release."""


@cache
def by_hand(words: str) -> DeviceProgram:
    t = loads(f"{STEPS}\ntask t = sums(N={N}, T={STEPS_OF[words]}) with by_hand")["t"]
    return lower_device(t.sample(0).program)


def run(p: DeviceProgram, words: str) -> tuple[str, bool]:
    """The first fault in any order, and whether all results are right."""
    x = np.random.default_rng(0).integers(1, 2**30, N, np.dtype(STEPS_OF[words].replace("i", "int")))
    kernels, faults, right = emulation(p), [], True
    for order in ORDERS:
        arrays = {"X": aligned_copy(x), "Y": aligned_empty(x.shape, x.dtype)}
        faults.append(kernels.run(arrays, {}, order))
        right &= bool(np.array_equal(arrays["Y"], np.cumsum(x, dtype=x.dtype)))
    return next((x for x in faults if x), ""), right


@pytest.mark.parametrize("words", STEPS_OF)
def test_blocks_pass_a_sum_on(words: str) -> None:
    assert run(by_hand(words), words) == ("", True)


def without_release(patch: pytest.MonkeyPatch) -> None:
    plain = Threads.put
    patch.setattr(Threads, "put", lambda self, chain, at, word, release: plain(self, chain, at, word, release=False))  # type: ignore[no-untyped-def]


def without_acquire(patch: pytest.MonkeyPatch) -> None:
    plain = Threads.get
    patch.setattr(
        Threads, "get", lambda self, chain, at, seen: plain(self, chain, at, "relaxed" if seen == "acquire" else seen)  # type: ignore[no-untyped-def]
    )


def flag_first(patch: pytest.MonkeyPatch) -> None:
    plain = Looking.post

    def post(self: Looking, word: str, *args: object) -> None:
        self.to.put(self.s.chain, word, str(args[-1]), release=True)
        plain(self, word, *args)  # type: ignore[arg-type]

    patch.setattr(Looking, "post", post)


def never_done(patch: pytest.MonkeyPatch) -> None:
    """The value of a step is said to be what it adds."""
    plain = Looking.post
    patch.setattr(Looking, "post", lambda self, *args: plain(self, *args[:-1], ADDS))  # type: ignore[no-untyped-def]
