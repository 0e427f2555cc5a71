"""Scans whose value blocks pass on: exact in each order of blocks, and each fault of the protocol is found."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.codegen.device import ADDS, Looking
from tensorc_dsl.backend.cuda.compiled import registers_of, tool
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.emulation.statements import Threads
from tensorc_dsl.backend.cuda.lower.kernels import STEP, DeviceProgram, LookBack, Ticket
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.memory import aligned_copy, aligned_empty
from tensorc_dsl.backend.protocol import ORDERS
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import loads
from tensorc_dsl.ir.expr import Compare, Var, add, floormod, index
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.trace.handlers import condition
from tests.gpu.kernels import ptx, whole, without_barrier
from tests.gpu.pretend import pretended
from tests.gpu.test_loader import told
from tests.gpu.test_scans import task

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


@pytest.mark.corpus
@pytest.mark.parametrize("words", STEPS_OF)
def test_blocks_pass_a_sum_on(words: str) -> None:
    assert run(by_hand(words), words) == ("", True)


def without_release(patch: pytest.MonkeyPatch) -> None:
    plain = Threads.put

    def put(self: Threads, chain: str, at: str, word: str, **_: bool) -> None:
        plain(self, chain, at, word, release=False)

    patch.setattr(Threads, "put", put)


def without_acquire(patch: pytest.MonkeyPatch) -> None:
    plain = Threads.get
    patch.setattr(
        Threads,
        "get",
        lambda self, chain, at, seen: plain(self, chain, at, "relaxed" if seen == "acquire" else seen),  # type: ignore[no-untyped-def]
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


def wrong_word(patch: pytest.MonkeyPatch) -> None:
    """The flag is made known by itself, and then with the value."""
    plain = Threads.put

    def put(self: Threads, chain: str, at: str, word: str, *, release: bool) -> None:
        plain(self, chain, at, self.f.op(f"and i64 {word}, 3"), release=release)
        plain(self, chain, at, word, release=release)

    patch.setattr(Threads, "put", put)


def last_first(patch: pytest.MonkeyPatch) -> None:
    """Blocks that begin later are of earlier steps."""
    plain, count = Threads.next_number, by_hand("packed").kernels[0].grid[0]

    def number(self: Threads, chain: str) -> str:
        return self.f.op(f"sub i64 {self.expressions.index(add(count, index(-1)))}, {plain(self, chain)}")

    patch.setattr(Threads, "next_number", number)


def wrong_value(patch: pytest.MonkeyPatch) -> None:
    """The first of the steps between is left out."""
    plain = Threads.counted

    def counted(self: Threads, var: str, begin: str, end: str, step: int, write: Callable[[], None]) -> None:
        later = self.f.op(f"add i64 {begin}, 1") if var == "look.step" else begin
        plain(self, var, later, end, step, write)

    patch.setattr(Threads, "counted", counted)


def stale_before(patch: pytest.MonkeyPatch) -> None:
    """What is before the block is taken for what is before the step that was found."""
    plain = Looking._find  # pyright: ignore[reportPrivateUsage]
    patch.setattr(Looking, "_find", lambda self: (self.to.write((self.s.before,)), plain(self))[1])  # type: ignore[no-untyped-def]
    patch.setattr(Looking, "_between", lambda _: None)


UNKNOWN, EVER, WRONG = "which no flag has made known", "waits for what no other block makes known", "wrong"
ASTRAY = "which is outside of it"

SEEDED: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], dict[str, str]]] = {
    "no release": (without_release, {"released": UNKNOWN}),
    "no acquire": (without_acquire, {"released": UNKNOWN}),
    "the flag before the value": (flag_first, {"packed": WRONG, "released": UNKNOWN}),
    "a flag and then its value": (wrong_word, {"packed": WRONG}),
    "no value is made known": (never_done, {"packed": f"{ASTRAY}|{EVER}", "released": f"{ASTRAY}|{EVER}"}),
    "waits for who begins later": (last_first, {"packed": EVER}),
    "a step is left out": (wrong_value, {"packed": WRONG, "released": WRONG}),
    "the wrong value is kept": (stale_before, {"packed": WRONG}),
}


@pytest.mark.corpus
@pytest.mark.parametrize(("case", "words"), [(c, w) for c, (_, said) in SEEDED.items() for w in said])
def test_what_is_wrong_with_the_protocol_is_found(case: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed, said = SEEDED[case]
    program = by_hand(words)
    seed(monkeypatch)
    fault, right = run(program, words)
    assert re.search(said[words], fault or ("" if right else WRONG)), (fault, right)


def changed(p: DeviceProgram, look: Callable[[LookBack], LookBack]) -> DeviceProgram:
    (k,) = p.kernels
    body = tuple(look(s) if isinstance(s, LookBack) else s for s in k.body)
    return replace(p, kernels=(replace(k, body=body),))


def without_ticket(p: DeviceProgram) -> DeviceProgram:
    (k,) = p.kernels
    return replace(p, kernels=(replace(k, body=tuple(s for s in k.body if not isinstance(s, Ticket))),))


def few_steps(s: LookBack) -> LookBack:
    """Steps that others need are not made."""
    return replace(s, conds=(Compare("<", Var(STEP), index(9)),))


KERNELS: dict[str, tuple[Callable[[DeviceProgram], DeviceProgram], str]] = {
    "the number of the machine": (without_ticket, EVER),
    "memory that is not 0": (lambda p: replace(p, kernels=(replace(p.kernels[0], cleared=()),)), f"{EVER}|{WRONG}|out"),
    "two steps share their words": (
        lambda p: changed(p, lambda s: replace(s, slot=floormod(s.slot, index(2)))),
        f"{WRONG}|{EVER}",
    ),
    "a step that is not made": (lambda p: changed(p, few_steps), WRONG),
    "no barrier behind the value before": (
        lambda p: replace(p, kernels=(without_barrier(p.kernels[0], 0),)),
        "meet without a barrier",
    ),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", KERNELS)
def test_what_is_wrong_with_a_kernel_is_found(case: str) -> None:
    change, said = KERNELS[case]
    fault, right = run(change(by_hand("packed")), "packed")
    assert re.search(said, fault or ("" if right else WRONG)), (fault, right)


def test_words_are_0_at_each_launch() -> None:
    x = np.ones(N, np.int32)
    with pretended() as gpu:
        t = loads(f"{STEPS}\ntask t = sums(N={N}, T=i32) with by_hand", target="native-cuda")["t"]
        kernel = t.replay(t.sample(0))
        for _ in range(2):
            kernel(x)
        order = [c for c in gpu.CALLS if c[0] in ("cuMemsetD8Async", "cuLaunchKernel")]
    assert [c[0] for c in order] == ["cuMemsetD8Async", "cuLaunchKernel"] * 2
    assert order[0][1:] == (0, 8 * (1 + N // 4))


@pytest.mark.corpus
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_loader_in_c_clears_words(tmp_path: Path) -> None:
    t = loads(f"{STEPS}\nuse std.gpu.targets.{{sm_80}}\ntask t = sums(N=8..{N}, T=i32) with by_hand", target="sm_80")[
        "t"
    ]
    lines = told(tmp_path, t, t.sample(0), ["t(&m, 0, 1024, 2048, 4096, 61)"], 4)
    words = [x for x in lines if x.startswith(("set", "launch"))]
    assert words[0] == f"set 4096 0 {8 * (1 + N // 4)}"
    assert words[1].startswith("launch t_0 16 1 1 4")


@pytest.mark.corpus
def test_memory_is_read_and_written_once() -> None:
    t = task("rows(M=2, N=2039, T=f32)")
    draws = {"together": True, "each": 8, "width": 64, "staged": True, "passed": True}
    trace = whole(t.drawn_from(condition(t.model, draws)).sample(0))
    (kernel,) = t.emulate(trace).counts
    sectors = sum(x.moves for x in kernel.traffic if not x.shared)
    assert sectors < 1.2 * 2 * (2 * 2039 * 4 / 32)


@pytest.mark.corpus
@pytest.mark.skipif(tool("ptxas") is None, reason="there is no ptxas")
@pytest.mark.parametrize("cpu", ["sm_80", "sm_90"])
@pytest.mark.parametrize("words", STEPS_OF)
def test_machine_code_acquires_and_releases(words: str, cpu: str) -> None:
    text = ptx(by_hand(words), cpu)
    assert ("st.release.gpu" in text) == ("ld.acquire.gpu" in text) == (words == "released")
    assert registers_of(text, cpu).spilled == ""


def test_a_processor_runs_blocks_in_order() -> None:
    t = loads(f"{STEPS}\ntask t = sums(N={N}, T=i32) with by_hand")["t"]
    x = np.arange(N, dtype=np.int32) * 7919
    np.testing.assert_array_equal(t.replay(t.sample(0))(x), np.cumsum(x, dtype=np.int32))


def test_a_block_makes_one_step() -> None:
    text = STEPS.replace('"block.x")\n', '"block.x")\n    persist(Y.loops[0])\n')
    with pytest.raises(LowerError, match="it is in a loop or under a condition"):
        lower_device(loads(f"{text}\ntask t = sums(N={N}, T=i32) with by_hand")["t"].sample(0).program, cores=3)


def test_threads_do_not_look_back() -> None:
    text = STEPS.replace("bind(Y.loops[1]", 'bind(add_unit_loop(carry), "thread.y")\n    bind(Y.loops[1]')
    with pytest.raises(LowerError, match="counts threads, and one thread looks back"):
        lower_device(loads(f"{text}\ntask t = sums(N={N}, T=i32) with by_hand")["t"].sample(0).program)


TWO = """program sums(X: i32[12], Y: i32[12]) {
    buffer S: i32[12]
    buffer R: i32[12]
    bound("block.x") for d in 12 {
        block S @("look_back", true) {
            scan vd in 12 = d
            S[vd] = X[vd] if vd < 1 else S[vd - 1] + X[vd]
        }
        block R @("look_back", true) {
            scan vd in 12 = d
            R[vd] = X[vd] if vd < 1 else R[vd - 1] * 3 + S[vd - 1]
        }
        block Y {
            spatial vd in 12 = d
            Y[vd] = 0 if vd < 1 else R[vd - 1] + S[vd - 1]
        }
    }
}"""


@pytest.mark.corpus
def test_a_scan_reads_what_another_one_passes_on() -> None:
    program = parse_program(Source("two", TWO))
    inputs = {"X": np.arange(1, 13, dtype=np.int32)}
    fault, found = emulated(lower_device(program), program, inputs)
    assert fault == ""
    for out in (*found, interpret(program, inputs, "shuffled")):
        np.testing.assert_array_equal(out["Y"], interpret(program, inputs)["Y"])
