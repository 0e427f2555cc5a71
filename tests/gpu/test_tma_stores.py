"""TMA stores: kernels that store tiles are exact, what is outside of an array is left out, and what is wrong is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.codegen.view import cuda_text
from tensorc_dsl.backend.cuda.compiled import assemble, sass_of, tool
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.emulation.statements import Threads
from tensorc_dsl.backend.cuda.lower import async_copies
from tensorc_dsl.backend.cuda.lower.kernels import (
    Barrier,
    Device,
    DeviceKernel,
    DeviceProgram,
    Guard,
    ProxyFence,
    Steps,
    TmaStore,
    WaitTmaStores,
    format_device,
    inside,
)
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.model.counts import counted
from tensorc_dsl.backend.memory import aligned_copy
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.expr import ONE, Compare, Var, add, substitute
from tensorc_dsl.ir.program import Program
from tensorc_dsl.lower.flat import Collective, Flat, Loop, LowerError, TmaTile
from tensorc_dsl.reference.evaluate import shape_of
from tests.gpu.kernels import ptx, without_barrier
from tests.gpu.test_pipeline_faults import changed
from tests.gpu.test_tma import FEATURES, MAPS, encode_wrongly, removed
from tests.gpu.tma_stores import hand


def numbers(rows: int, width: int) -> Array:
    return np.arange(rows * width, dtype=np.float32).reshape(rows, width)


def run(program: Program, found: DeviceProgram) -> tuple[str, bool]:
    """The fault, and whether all results are right."""
    a = numbers(*shape_of(program.inputs[0]))
    fault, outputs = emulated(found, program, {"A": a})
    return fault, all(np.array_equal(x["C"], 2 * a) for x in outputs)


@pytest.mark.corpus
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_tma_stores_are_exact_in_each_order_of_memory(swizzle: int) -> None:
    program = hand(swizzle)
    assert run(program, lower_device(program, FEATURES)) == ("", True)


@pytest.mark.corpus
@pytest.mark.parametrize(("rows", "width"), [(41, 64), (47, 44), (33, 36), (1, 4), (48, 4), (16, 64)])
def test_what_is_outside_of_an_array_is_not_stored(rows: int, width: int) -> None:
    """Parts of a tile, whole tiles and whole blocks."""
    program = hand(128, rows, width)
    found = lower_device(program, FEATURES)
    assert run(program, found) == ("", True)
    assert "if" not in format_device(found).split("TMA stores")[1]


@pytest.mark.corpus
def test_open_sizes_are_those_of_the_call() -> None:
    changes = (
        (
            "p(A: f32[ROWS, WIDTH], C: f32[ROWS, WIDTH]) {",
            "p(A: f32[ROWS, 36], C: f32[ROWS, 36]) where ROWS in 1..48 {",
        ),
    )
    program = hand(128, changes=(*changes, ("ROWS", "M"), ("WIDTH", "36")))
    kernels = emulation(lower_device(program, FEATURES))
    for rows in (1, 16, 23, 48):
        a = numbers(rows, 36)
        arrays = {"A": aligned_copy(a), "C": aligned_copy(np.full_like(a, np.nan))}
        assert kernels.run(arrays, {"M": rows}, "shuffled") == ""
        np.testing.assert_array_equal(arrays["C"], 2 * a)


def test_what_stands_around_tma_stores_is_placed() -> None:
    """The tile is written again behind a wait of the one thread and a barrier, and read behind a fence and a barrier."""
    text = format_device(lower_device(hand(), FEATURES))
    said = [
        x
        for x in map(str.strip, text.splitlines())
        if x.startswith(("cp.", "one", "barrier", "for s", "fence", "threads {"))
    ]
    assert said == [
        "for s in 0 .. 2 {",
        "cp.async.bulk.wait_group.read 0",
        "barrier",
        "threads {",
        "fence.proxy.async",
        "barrier",
        "one thread starts TMA stores, cp.async.bulk.commit_group {",
        "cp.async.bulk.wait_group.read 0",
    ]


@pytest.mark.corpus
def test_each_barrier_is_needed() -> None:
    program = hand()
    found = lower_device(program, FEATURES)
    for number, said in ((0, "meet without a barrier"), (1, "meet without a barrier")):
        fewer = tuple(without_barrier(k, number) for k in found.kernels)
        assert said in run(program, replace(found, kernels=fewer))[0]


def anything(_: DeviceKernel) -> None:
    """Takes any kernel."""


UNKNOWN = r"stored without fence\.proxy\.async"
REUSED = r"TMA store in flight that reads .*, and thread \d+ stores it before cp\.async\.bulk\.wait_group\.read"
UNREAD = r"ends while TMA stores still read shared memory"
RACE = r"meet without a barrier between them"
WAY = r"to which an asynchronous copy is in flight"


def in_steps(change: Callable[[tuple[Device, ...]], tuple[Device, ...]]) -> Callable[[Device], Device]:
    return lambda s: replace(s, body=change(s.body)) if isinstance(s, Steps) else s


def fence_behind(body: tuple[Device, ...]) -> tuple[Device, ...]:
    """The fence stands behind the barrier."""
    out: list[Device] = [s for s in body if not isinstance(s, ProxyFence)]
    out.insert([n for n, s in enumerate(out) if isinstance(s, Barrier)][-1] + 1, ProxyFence())
    return tuple(out)


def wait_behind(body: tuple[Device, ...]) -> tuple[Device, ...]:
    """The wait stands behind the barrier, so others may be ahead of it."""
    wait, barrier, *rest = body
    assert isinstance(wait, WaitTmaStores) and isinstance(barrier, Barrier)
    return (barrier, wait, *rest)


FAULTS: dict[str, tuple[Callable[[Device], Device | None], str]] = {
    "no fence": (removed(ProxyFence), UNKNOWN),
    "a fence behind the barrier": (in_steps(fence_behind), UNKNOWN),
    "no wait": (removed(WaitTmaStores), UNREAD),
    "no wait in the loop": (
        in_steps(lambda body: tuple(s for s in body if not isinstance(s, WaitTmaStores))),
        REUSED,
    ),
    "a wait behind the barrier": (in_steps(wait_behind), rf"{RACE}|{REUSED}"),
    "no wait for the first tile": (
        in_steps(lambda body: (Guard(Compare("!=", Var("s"), ONE), body[:1]), *body[1:])),
        REUSED,
    ),
    "nothing is stored": (removed(TmaStore), ""),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", FAULTS)
def test_what_is_wrong_around_tma_stores_is_found(case: str) -> None:
    """By a fault, or by the result."""
    change, said = FAULTS[case]
    program = hand()
    fault, right = run(program, changed(lower_device(program, FEATURES), change))
    assert re.search(said, fault) and (fault or not right), fault


@pytest.mark.corpus
def test_a_wait_that_is_missing_at_the_end_is_found() -> None:
    program = hand()
    found = lower_device(program, FEATURES)
    (k,) = found.kernels
    assert isinstance(k.body[-1], WaitTmaStores)
    fault, _ = run(program, replace(found, kernels=(replace(k, body=k.body[:-1]),)))
    assert re.search(UNREAD, fault), fault


@pytest.mark.corpus
@pytest.mark.parametrize("which", ["commit", "wait"])
def test_the_thread_that_starts_commits_and_waits(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are those of a thread: another one's commit or wait is for nothing."""

    def other(self: Threads) -> None:
        self._landing(6 if which == "commit" else 7, "1")

    monkeypatch.setattr(Threads, f"{which}_tma_stores", other)
    program = hand()
    fault, _ = run(program, lower_device(program, FEATURES))
    assert re.search(UNREAD, fault), fault


def moved(change: Callable[[TmaTile], TmaTile]) -> Callable[[Device], Device]:
    """TMA stores at other places."""

    def flat(s: Flat) -> Flat:
        if isinstance(s, Collective):
            assert s.tile is not None
            return replace(s, tile=change(s.tile))
        assert isinstance(s, Loop)  # around what is stored
        return replace(s, body=tuple(map(flat, s.body)))

    return lambda s: replace(s, body=tuple(map(flat, s.body))) if isinstance(s, TmaStore) else s


PLACES: dict[str, tuple[Callable[[TmaTile], TmaTile], str]] = {
    "a row too far": (lambda t: replace(t, origin=(add(t.origin[0], ONE), t.origin[1])), rf"^$|{RACE}"),
    "a column too far": (lambda t: replace(t, origin=(t.origin[0], add(t.origin[1], ONE))), r"^$"),
    "columns for rows": (lambda t: replace(t, origin=(t.origin[1], t.origin[0])), rf"^$|{RACE}|{WAY}"),
    "the tile of another block": (
        lambda t: replace(t, origin=(substitute(t.origin[0], {"block.x": ONE}), t.origin[1])),
        RACE,
    ),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", PLACES)
def test_wrong_coordinates_are_found(case: str) -> None:
    """By a fault, or by the result."""
    change, said = PLACES[case]
    program = hand()
    fault, right = run(program, changed(lower_device(program, FEATURES), moved(change)))
    assert re.search(said, fault) and (fault or not right), fault


@pytest.mark.corpus
@pytest.mark.parametrize("case", MAPS)
def test_a_wrong_map_is_found(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a fault, or by the result."""
    encode_wrongly(case, monkeypatch)
    program = hand(64)
    fault, right = run(program, lower_device(program, FEATURES))
    assert fault or not right


BESIDE = """
            bound("thread.x") for t_1 in 64 {
                block D {
                    spatial vi in 48 = b * 16 + t_1 / 4; spatial vj in 2 * COLUMNS = s * COLUMNS + t_1 % 4
                    where b * 16 + t_1 / 4 < ROWS and s * COLUMNS + t_1 % 4 < WIDTH
                    STATEMENT
                }
            }"""

END = "                }\n            }\n        }\n    }\n}"

WRITES = "C[vi, vj] = 0.0"
READS = "E[vi, vj] = C[vi, vj]"


@pytest.mark.corpus
@pytest.mark.parametrize("statement", [WRITES, READS])
def test_other_accesses_to_the_array_are_refused_and_found(statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [
        (END, END[: END.index("        }\n    }")] + BESIDE.replace("STATEMENT", statement) + "\n        }\n    }\n}")
    ]
    if statement == READS:
        changes.append(("C: f32[ROWS, WIDTH]) {", "C: f32[ROWS, WIDTH], E: f32[ROWS, WIDTH]) {"))
    program = hand(changes=tuple(changes))
    with pytest.raises(LowerError) as e:
        lower_device(program, FEATURES)
    does = "reads" if statement == READS else "writes"
    assert str(e.value) == f"TMA stores tiles of `C`, and the kernel {does} `C` in other statements; store by threads"
    monkeypatch.setattr(async_copies, "_require_stores_alone", anything)
    fault, _ = run(program, lower_device(program, FEATURES))
    assert re.search(rf"{RACE}|{WAY}", fault), fault


@pytest.mark.corpus
def test_two_stores_of_one_element_are_refused_and_found(monkeypatch: pytest.MonkeyPatch) -> None:
    program = hand(
        changes=(("for s in 2 {", "for s in 2 {\n for z in 2 {"), ("        }\n    }\n}", "        }\n    }\n}\n}"))
    )
    with pytest.raises(LowerError) as e:
        lower_device(program, FEATURES)
    assert str(e.value) == "TMA stores of `C` may write one element twice, in no order; store by threads"
    monkeypatch.setattr(async_copies, "_require_stores_alone", anything)
    fault, _ = run(program, lower_device(program, FEATURES))
    assert re.search(WAY, fault), fault


STORED = "where b * 16 + r * 8 + i < ROWS and s * COLUMNS + j < WIDTH\n                            C["


@pytest.mark.parametrize(
    "other",
    [
        "b * 16 + r * 8 + i < ROWS - 1 and s * COLUMNS + j < WIDTH",
        "b * 16 + r * 8 + i < ROWS and s * COLUMNS + j < WIDTH and i < 7",
        "b * 16 + r * 8 + i < ROWS and s * COLUMNS + j < WIDTH - 4",
        "b * 16 + r * 8 + i < ROWS and s * COLUMNS + j < WIDTH and (j + i) % 2 < 1",
    ],
)
def test_what_leaves_out_other_elements_is_no_tma_store(other: str) -> None:
    changes = ((STORED, f"where {other}\n                            C["),)
    with pytest.raises(LowerError) as e:
        lower_device(hand(128, 41, 44, changes), FEATURES)
    assert str(e.value) == "it is not known to leave out what is outside of `C`, and only that"


@pytest.mark.corpus
def test_a_condition_of_a_whole_tile_stays() -> None:
    """The second tiles of the first block are not stored."""
    changes = ((STORED, STORED.replace("where ", "where b + s < 3 and ")),)
    program = hand(128, 41, 44, changes)
    found = lower_device(program, FEATURES)
    assert "if block.x + s < 3 {" in format_device(found)
    a = numbers(41, 44)
    fault, outputs = emulated(found, program, {"A": a})
    assert fault == ""
    for x in outputs:
        np.testing.assert_array_equal(x["C"][:32], 2 * a[:32])
        np.testing.assert_array_equal(x["C"][32:, :32], 2 * a[32:, :32])
        assert not np.array_equal(x["C"][32:, 32:], 2 * a[32:, 32:])


REFUSED: dict[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "threads around": (
        (("for r in 2 {", 'bound("thread.y") for r in 2 {'),),
        "put is inside of `r`, which counts threads, and one thread starts a TMA store; leave its loops unbound",
    ),
    "no swizzle": (
        ((" SWIZZLED", ""),),
        (
            "put takes `S` with a swizzle of 128 bytes, and `T` has none; `storage_swizzle` it in units of 4 elements, with"
            " rows of 32"
        ),
    ),
    "rows at odd places": (
        (("C: f32[ROWS, WIDTH]", "C: f32[ROWS, 66]"),),
        "put takes arrays whose rows are multiples of 16 bytes apart, and those of `C` are `66` elements of 4 bytes apart",
    ),
    "values that are filled in": (
        (("= T[vi % 16, vj % COLUMNS]", "= T[vi % 16, vj % COLUMNS] if vi < 9 else 0.0"),),
        "",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_tile_can_be_is_refused(case: str) -> None:
    """A store that fills in is no TMA store, and runs as loops."""
    changes, message = REFUSED[case]
    program = hand(changes=changes)
    if not message:
        assert "TMA stores" not in format_device(lower_device(program, FEATURES))
        return
    with pytest.raises(LowerError) as e:
        lower_device(program, FEATURES)
    assert str(e.value) == message


def test_what_tma_stores_move_is_counted() -> None:
    """Three blocks store two times two tiles of eight rows of four sectors each."""
    program = hand()
    found = lower_device(program, FEATURES)
    (k,) = found.kernels
    a = numbers(48, 64)
    fault, (counts,) = emulation(found).count({"A": a, "C": np.zeros_like(a)}, {})
    assert fault == ""
    moves = {(x.buffer, x.write): (x.requests, x.moves, x.least) for x in counts.traffic if x.into == "C"}
    assert moves == {("C", True): (12, 384, 384), ("T", False): (12, 96, 96)}
    only = replace(k, body=tuple(s for s in k.body if isinstance(s, Steps)))
    stores = replace(only, body=in_all(only.body, lambda s: s if isinstance(s, Steps | TmaStore) else None))
    model = counted(stores, {}, {"A": 4, "C": 4})
    assert (model.sectors, model.passes) == (384, 96)


def in_all(body: tuple[Device, ...], change: Callable[[Device], Device | None]) -> tuple[Device, ...]:
    out = (change(replace(s, body=in_all(s.body, change)) if isinstance(s, Steps) else s) for s in body)
    return tuple(s for s in out if s is not None)


def test_the_view_has_words_for_it() -> None:
    text = cuda_text(lower_device(hand(width=32), FEATURES))
    (k,) = lower_device(hand(width=32), FEATURES).kernels
    stores = sum(isinstance(x, TmaStore) for x in inside(k.body))
    assert text.count("cp.async.bulk.commit_group;") == stores > 0
    assert (
        text.count("cp.async.bulk.wait_group.read 0;") == sum(isinstance(x, WaitTmaStores) for x in inside(k.body)) > 0
    )
    assert re.search(r'\[%1, \{%2, %3\}\], \[%0\];" :: "r"\(place\(&\w+\[[^"]*\)\), "l"\(&map0_\), ', text)


@pytest.mark.parametrize("swizzle", [0, 128])
def test_ptxas_takes_it(swizzle: int, tmp_path: Any) -> None:
    code = ptx(lower_device(hand(swizzle), FEATURES), "sm_90a")
    store = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
    order = ("fence.proxy.async.shared::cta", store, "cp.async.bulk.commit_group")
    assert all(x in code for x in order) and code.count("cp.async.bulk.wait_group.read 0") == 2
    if tool("ptxas") is not None:
        said = assemble(code, "sm_90a", tmp_path / "k.cubin")
        assert set(re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)) == {"0"}
    if tool("ptxas") is not None and tool("nvdisasm") is not None:
        machine = sass_of(code, "sm_90a")
        assert "UTMASTG.2D" in machine and "UTMACMDFLUSH" in machine
