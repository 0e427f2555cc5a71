"""Clusters: blocks load tiles for each other, exact in each order of threads and blocks, and what is wrong is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.gpu_static import kernels_of as machine_kernels_of
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.codegen.view import cuda_text
from tensorc_dsl.backend.cuda.compiled import assemble, remarks, sass_of, tool
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.clusters import with_clusters
from tensorc_dsl.backend.cuda.lower.kernels import (
    CLUSTER,
    ArriveMbarrier,
    Barrier,
    Device,
    Guard,
    InitMbarriers,
    Role,
    Steps,
    TmaLoad,
    WaitMbarrier,
    inside,
    roles_in,
    tma_in,
)
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.model.counts import counted
from tensorc_dsl.backend.memory import aligned_copy
from tensorc_dsl.ir.arrays import Array, narrow, stored_dtype, widen
from tensorc_dsl.ir.expr import Compare, Var, add, constant, index, mul
from tensorc_dsl.ir.program import Program
from tensorc_dsl.lower.flat import Collective, Flat, If, Loop, LowerError
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.schedule.trace.distribution import Decision
from tests.gpu.kernels import ptx
from tests.gpu.roles import WORDS, lines, roles
from tests.gpu.tensor_cores import run, whole_numbers
from tests.gpu.test_hopper import drawn, hopper
from tests.gpu.test_pipeline_faults import changed
from tests.gpu.test_role_faults import HELD, NEVER, PHASES, WAY, of_role
from tests.gpu.test_stored_products import task as stored_task
from tests.gpu.test_tma import FEATURES, hand

Changes = tuple[tuple[str, str], ...]


def clusters(blocks: int = 2, count: int = 1, axis: str = "cluster.x") -> Changes:
    """The changes by which the product of `hand` has so many clusters of blocks, each of 16 rows."""
    every, at = blocks * count, f"spatial vc in {blocks * count} = b * {blocks} + c"
    return (
        ("A: f16[16, STEPS", f"A: f16[{16 * every}, STEPS"),
        ("C: f32[16, COLUMNS]", f"C: f32[{16 * every}, COLUMNS]"),
        ('bound("block.x") for b in 1 {', f'bound("block.x") for b in {count} {{ bound("{axis}") for c in {blocks} {{'),
        ("As[vi, vk] = A[vi, ", f"{at}; As[vi, vk] = A[vc * 16 + vi, "),
        ("init { C[vi, vj] = 0.0 }", f"{at}; init {{ C[vc * 16 + vi, vj] = 0.0 }}"),
        ("C[vi, vj] = C[vi, vj] +", "C[vc * 16 + vi, vj] = C[vc * 16 + vi, vj] +"),
        ("        }\n    }\n}\n", "        }\n    } }\n}\n"),
    )


def product(blocks: int = 2, count: int = 1, rounds: int = 7, more: Changes = ()) -> Program:
    return hand(changes=(*clusters(blocks, count), *roles(rounds=rounds), *more))


ALONE = ("sm_80", "sm_90a")
"""The features of a machine that has the instructions of these programs, and no clusters."""


@pytest.mark.corpus
@pytest.mark.parametrize(("blocks", "count", "rounds"), [(2, 1, 5), (2, 3, 7), (3, 1, 4), (4, 2, 3), (8, 1, 2)])
def test_a_product_is_exact(blocks: int, count: int, rounds: int) -> None:
    """Four boxes of the right factor are not as many for each of three and eight blocks."""
    program = product(blocks, count, rounds)
    found = lower_device(program, FEATURES)
    (k,) = found.kernels
    assert k.shared_loads and constant(k.grid[0]) == blocks * count
    assert run(program, found) == ("", True)


BY = 'by "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [D], [S];" {'


def test_what_stands_in_a_cluster_is_placed() -> None:
    found = lower_device(product(), FEATURES)
    assert lines(found, (*WORDS, "kernel", "box")) == [
        "kernel p_0(A, B, C) on 2 x 1 x 1 blocks, clusters of 2, of 96 threads {",
        "mbarrier.init of 6 mbarriers, arrival counts 1, 1, 1, 4, 4, 4",
        "barrier.cluster",
        "role fetch, one of 32 threads {",
        "for s in 0 .. 7 {",
        "mbarrier.try_wait 3 + s % 3",
        "one thread starts TMA loads, expect_tx 3072 bytes at mbarrier s % 3 {",
        f"box of 8 x 32 from A[cluster.x * 16 + r * 8, s * 32] {BY}",
        "if q % 2 == cluster.x {",
        f"box of 8 x 32 from B[s * 32 + q * 8, 0] for 2 blocks {BY}",
        "role use, 64 threads {",
        "for s in 0 .. 7 {",
        "mbarrier.try_wait s % 3",
        "mbarrier.arrive 3 + s % 3 of 2 blocks",
        "barrier.cluster",
    ]


def test_boxes_that_are_not_as_many_for_each_block_are_loaded_in_turn() -> None:
    found = lower_device(product(3), FEATURES)
    assert "if (q + s) % 3 == cluster.x {" in lines(found, ("if",))


def test_the_code_launches_clusters() -> None:
    code = ptx(lower_device(product(), FEATURES), "sm_90a")
    assert ".explicitcluster" in code and re.search(r"\.reqnctapercluster 2\b", code)
    assert len(re.findall(r"bytes\.multicast::cluster \[", code)) == 1
    assert len(re.findall(r"mbarrier\.arrive\.shared::cluster\.b64", code)) == 1
    assert code.count("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;") == 2


def test_ptxas_takes_the_code() -> None:
    if tool("ptxas") is None or tool("nvdisasm") is None:
        pytest.skip("ptxas or nvdisasm is not installed")
    machine = sass_of(ptx(lower_device(product(), FEATURES), "sm_90a"), "sm_90a")
    assert machine.count("UTMALDG.2D.MULTICAST") == 1 and machine.count("UCGABAR_ARV") == 2


def test_the_view_has_the_words_of_clusters() -> None:
    text = cuda_text(lower_device(product(), FEATURES))
    assert "__cluster_dims__(2, 1, 1)" in text and "const long long cluster_x_ = blockIdx.x % 2;" in text
    assert '.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"' in text and "mbarrier_arrive_at(" in text


def test_a_gpu_without_clusters_has_blocks_like_any_others() -> None:
    program = product(2, 3)
    found = lower_device(program, ALONE)
    (k,) = found.kernels
    assert not k.shared_loads and k.cluster == 2 and constant(k.grid[0]) == 6
    assert run(program, found) == ("", True)
    assert "cluster" not in ptx(found, "sm_90a").replace("shared::cluster", "")


REPAIR = 'bind what counts its blocks to "block.x", "block.y" or "block.z"'

REFUSED: dict[str, tuple[Changes, str]] = {
    "no roles": (
        clusters(),
        (
            "the blocks of a cluster load tiles for each other where a role of its own starts TMA loads, and this kernel has"
            f" none; use `specialize` where TMA loads both factors, or {REPAIR}"
        ),
    ),
    "nothing in common": (
        (
            *clusters(),
            *roles(),
            ("B: f16[5 * COLUMNS", "B: f16[6 * COLUMNS"),
            ("Bs[vk, vj] = B[vs * COLUMNS", "spatial vc in 2 = c; Bs[vk, vj] = B[(vs + vc) * COLUMNS"),
        ),
        (
            "no tile is the same for the 2 blocks of a cluster: that of `A` begins at [cluster.x * 16 + r * 8, s * 32], that"
            ' of `B` begins at [cluster.x * 32 + s * 32 + q * 8, 0]; bind to "cluster.x" a loop on which one of them does'
            f" not depend, or {REPAIR}"
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_cluster_that_shares_nothing_is_refused(case: str) -> None:
    changes, message = REFUSED[case]
    with pytest.raises(LowerError) as e:
        lower_device(hand(changes=changes), FEATURES)
    assert str(e.value) == message


@pytest.mark.parametrize(
    ("cond", "alike"),
    [
        ("cluster.x < 1", False),
        ("block.x * 2 + cluster.x < 3", False),
        ("block.x * 2 + cluster.x < 4", True),
        ("block.x < 1", True),
    ],
)
def test_other_rounds_are_refused(cond: str, alike: bool) -> None:
    """In a grid of two clusters a condition holds for all blocks of one, or not."""
    (k,) = lower_device(product(count=2), ALONE).kernels
    x, c = Var("block.x"), Var(CLUSTER)
    guard = Compare(
        "<", {"c": c, "b": x}[cond[0]] if "*" not in cond else add(mul(x, index(2)), c), index(int(cond[-1]))
    )
    wrong = replace(
        k, body=tuple(replace(s, body=(Guard(guard, s.body),)) if isinstance(s, Role) else s for s in k.body)
    )
    if alike:
        assert with_clusters(wrong, FEATURES).shared_loads
        return
    with pytest.raises(
        LowerError, match=f"may run different rounds of `fetch`, since `{re.escape(cond)}` is not the same"
    ):
        with_clusters(wrong, FEATURES)


@pytest.mark.parametrize("kind", [TmaLoad, WaitMbarrier, ArriveMbarrier])
def test_another_mbarrier_in_each_block_is_refused(kind: type[TmaLoad | WaitMbarrier | ArriveMbarrier]) -> None:
    """The bytes for all blocks are known at the mbarrier of the same number."""
    found = lower_device(product(), ALONE)
    own = changed(found, lambda s: replace(s, at=add(s.at, Var(CLUSTER))) if isinstance(s, kind) else s)
    with pytest.raises(LowerError, match=r"may run different rounds of `\w+`, since `.*cluster\.x` is not the same"):
        with_clusters(own.kernels[0], FEATURES)


def test_what_is_waited_for_at_once_is_for_its_own_block() -> None:
    """No thread that multiplies knows whether other blocks still read what it would load for them."""
    (k,) = lower_device(product(), ALONE).kernels
    load = next(s for s in inside(k.body) if isinstance(s, TmaLoad))

    def with_load(s: Device) -> Device:
        return replace(s, body=(load, *s.body)) if isinstance(s, Role) and not s.alone else s

    found = with_clusters(replace(k, body=tuple(map(with_load, k.body))), FEATURES)
    own = {r.name: [t.tile.blocks for x in inside(r.body) if isinstance(x, TmaLoad) for t in tma_in(x.body) if t.tile]
           for r in roles_in(found.body)}  # fmt: skip
    assert own == {"fetch": [0, 3], "use": [0, 0]}


def test_what_is_shared_is_counted_once() -> None:
    """Each of two blocks loads half of the right factor in place of all of it, for the model and in the emulation."""
    sectors: list[tuple[float, float]] = []
    for axis in ("block.y", "cluster.x"):
        program = hand(changes=(*clusters(axis=axis), *roles(rounds=7)))
        found = lower_device(program, FEATURES)
        arrays = {b.name: aligned_copy(np.zeros(shape_of(b), stored_dtype(b.dtype))) for b in program.params}
        fault, (counts,) = emulation(found).count(arrays, {})
        assert fault == "" and counts.blocks == 2
        sectors.append((counted(found.kernels[0], {}, {"A": 2, "B": 2, "C": 4}).sectors, counts.moves(False)))
    (model, emulated_), (shared, once) = sectors
    assert model - shared == pytest.approx(7 * 32 * 32 * 2 / 32) == emulated_ - once


# Faults.


def boxes(change: Callable[[Collective], Flat]) -> Callable[[Device], Device]:
    """The change of each box of a role that is for several blocks."""

    def flat(s: Flat) -> Flat:
        if isinstance(s, If | Loop):
            return replace(s, body=tuple(map(flat, s.body)))
        return change(s) if isinstance(s, Collective) and s.tile is not None and s.tile.blocks else s

    return lambda s: replace(s, body=tuple(map(flat, s.body))) if isinstance(s, TmaLoad) else s


def masked(blocks: int) -> Callable[[Collective], Flat]:
    return lambda s: replace(s, tile=None if s.tile is None else replace(s.tile, blocks=blocks))


def all_boxes(s: Device) -> Device:
    """Each block loads all boxes, for all."""
    if not isinstance(s, TmaLoad):
        return s

    def flat(x: Flat) -> Flat:
        if isinstance(x, Loop):
            inner = [y for z in x.body for y in (z.body if isinstance(z, If) else (z,))]
            return replace(x, body=tuple(map(flat, inner)))
        return x

    return replace(s, body=tuple(map(flat, s.body)))


def met(number: int) -> Callable[[Device], Device]:
    """Of the barriers of a cluster, the one of this number is that of a block."""
    seen = [0]

    def go(s: Device) -> Device:
        if isinstance(s, Barrier) and s.cluster:
            seen[0] += 1
            return Barrier() if seen[0] == number + 1 else s
        return s

    return go


def for_warps(count: int) -> Callable[[Device], Device]:
    """So many warps at each mbarrier of warps."""
    return lambda s: (
        replace(s, awaited=tuple(count if n else 0 for n in s.awaited)) if isinstance(s, InitMbarriers) else s
    )


def at_own(s: Device) -> Device:
    return replace(s, blocks=1) if isinstance(s, ArriveMbarrier) else s


def own_alone(s: Device) -> Device:
    """Warps arrive at their own block alone, which waits for no others."""
    return for_warps(2)(at_own(s))


def early(s: Device) -> Device:
    """A slot is released before it is read."""
    if not isinstance(s, Steps) or not isinstance(s.body[-1], ArriveMbarrier):
        return s
    return replace(s, body=(s.body[0], s.body[-1], *s.body[1:-1]))


UNARMED = "uses an mbarrier that is not initialised"
ENDED = "and another one of its cluster access each other's shared memory, and may have ended"

FAULTS: dict[str, tuple[Callable[[Device], Device | None], str]] = {
    "for the first block alone": (of_role("fetch", boxes(masked(1))), rf"{NEVER}|{PHASES}|{WAY}"),
    "for a block that is not there": (of_role("fetch", boxes(masked(7))), ENDED),
    "by each block": (of_role("fetch", all_boxes), rf"{WAY}|{NEVER}"),
    "for none but its own": (of_role("fetch", boxes(masked(0))), NEVER),
    "no arrival at others": (of_role("use", at_own), NEVER),
    "nobody asks the others": (own_alone, rf"{HELD}|{WAY}"),
    "too few warps": (for_warps(3), rf"{HELD}|{WAY}|{NEVER}|{PHASES}"),
    "too many warps": (for_warps(5), NEVER),
    "released too early": (early, rf"{HELD}|{WAY}"),
    "no room": (of_role("fetch", lambda s: None if isinstance(s, WaitMbarrier) else s), rf"{HELD}|{WAY}|{PHASES}"),
    "no barrier at the start": (met(0), UNARMED),
    "no barrier at the end": (met(1), ENDED),
    "a block loads nothing": (
        lambda s: (
            replace(s, body=(*(x for x in s.body if not isinstance(x, Steps)),))
            if isinstance(s, Role) and s.alone
            else s
        ),
        NEVER,
    ),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", FAULTS)
def test_what_is_wrong_in_a_cluster_is_found(case: str) -> None:
    change, said = FAULTS[case]
    program = product(count=2)
    found = lower_device(program, FEATURES)
    wrong = changed(found, change)
    assert wrong != found
    fault, _ = run(program, wrong)
    assert re.search(said, fault), fault


def test_each_box_is_loaded_by_one_block() -> None:
    (k,) = lower_device(product(4, 1), FEATURES).kernels
    every = [s.tile for x in inside(k.body) if isinstance(x, TmaLoad) for s in tma_in(x.body)]
    assert [t.blocks for t in every if t is not None] == [0, 15]
    assert np.prod([t.map.sizes for t in every if t is not None]) == (8 * 32) ** 2


# The rule of `std.gpu.hopper`.


def transposed(a: Array, b: Array) -> Array:
    return a @ b.T


LOADED: dict[str, Decision] = {"warpgroups": True, "copied": "tma", "copied_1": "tma"}

IN_TURN: dict[str, Decision] = {"persistent": True, "height": 1, "ahead": 2}

PAIRS: dict[str, tuple[str, dict[str, Decision], Callable[..., Array]]] = {
    "rows": (
        "half_transposed(M=256, N=64, K=192)",
        {"inner": (2, 2, 1, 64), "ahead": 2, "cluster": 0},
        transposed,
    ),
    "columns": (
        "half_matmul(M=64, N=256, K=128)",
        {"inner_1": (2, 1, 2, 64), "ahead": 1, "cluster": 1},
        lambda a, b: a @ b,
    ),
    "no whole tiles": (
        "half_matmul(M=50, N=72, K=72)",
        {"inner_1": (2, 1, 1, 64), "filled": True, "filled_1": True, "ahead": 1, "cluster": 1},
        lambda a, b: a @ b,
    ),
    "in turn": (
        "half_transposed(M=128, N=192, K=128)",
        {**IN_TURN, "inner": (2, 1, 1, 64), "inner_1": (3, 1, 1, 64), "teams": 1, "cluster": 0},
        transposed,
    ),
    "two teams": (
        "half_transposed(M=192, N=128, K=128)",
        {**IN_TURN, "inner": (3, 1, 1, 64), "inner_1": (2, 1, 1, 64), "teams": 2, "cluster": 1},
        transposed,
    ),
    "stored by TMA": (
        "converted(M=128, N=128, K=128, S=f16, T=f16)",
        {"inner": (2, 1, 1, 64), "inner_1": (2, 1, 1, 64), "ahead": 1, "stored": "tma", "cluster": 0},
        lambda a, b, d: np.maximum(a @ b.T + d, 0),
    ),
    "of 8 bits": (
        "two_types(M=128, N=64, K=256, S=f8e4m3, T=f8e4m3)",
        {"inner": (2, 1, 1, 64), "ahead": 1, "cluster": 0},
        transposed,
    ),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", PAIRS)
def test_pairs_that_the_rule_draws_are_exact(case: str, tmp_path: Path) -> None:
    """And ptxas keeps all in registers, with as many products as alone."""
    text, decisions, reference = PAIRS[case]
    t = stored_task(tmp_path, text)
    inputs, wide = whole_numbers(t.program)
    (out,) = t.program.outputs
    expected = widen(narrow(reference(*wide), out.dtype), out.dtype)
    for program, found in drawn(t, {**LOADED, **decisions}, "cluster")[:1]:
        (k,) = (k for k in found.kernels if roles_in(k.body))
        assert k.shared_loads and k.cluster == 2
        fault, outputs = emulated(found, program, inputs)
        assert fault == "" and all(np.array_equal(widen(x[out.name], out.dtype), expected) for x in outputs)
        code = ptx(found, "sm_90a")
        assert "multicast::cluster" in code
        if tool("ptxas") is not None:
            said = assemble(code, "sm_90a", tmp_path / "k.cubin")
            assert set(re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)) == {"0"}
            assert not remarks(said)
        if tool("ptxas") is not None and tool("nvdisasm") is not None:
            machine = sass_of(code, "sm_90a")
            assert re.search(r"UTMALDG\.\dD\.MULTICAST", machine)
            assert len(re.findall("[HQ]GMMA", machine)) == code.count("wgmma.mma_async")


@pytest.mark.corpus
def test_the_loop_of_products_is_no_longer_than_alone(tmp_path: Path) -> None:
    if tool("ptxas") is None or tool("nvdisasm") is None:
        pytest.skip("ptxas or nvdisasm is not installed")
    text, decisions, _ = PAIRS["rows"]
    length: list[int] = []
    for cluster in (-1, 0):
        ((_, found),) = drawn(hopper(tmp_path, text), {**LOADED, **decisions, "beside": True, "cluster": cluster})[:1]
        (machine,) = machine_kernels_of(sass_of(ptx(found, "sm_90a"), "sm_90a"))
        length.append(min(b - a for a, b in machine.loops if any(op.products for op in machine.ops[a : b + 1])))
    assert length[1] <= length[0] + 1, "but for `mapa`, as long"
