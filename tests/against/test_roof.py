"""The roof of a row is the product's: of what can do the work, the fastest on this machine, measured in the whole run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorc_dsl
from bench.against import roof
from bench.against.roof import Need, Roof
from tensorc_dsl import TaskFile
from tensorc_dsl.backend.llvm import backend
from tensorc_dsl.backend.llvm.runtime.peak import Instruction
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.machine.roof import roof_of

FILE = """\
use std.cpu
compute product(A: bf16[M, K], B: bf16[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] f32(A[i, k]) * f32(B[k, j]) }
compute words(A: i16[M, K], B: i16[K, N]) -> C: i32[M, N] { C[i, j] = sum[k] i32(A[i, k]) * i32(B[k, j]) }
compute copy(A: f32[M]) -> B: f32[M] { B[i] = A[i] }
task bf16_64 = product(M=64, N=64, K=64)
task bf16_128 = product(M=128, N=128, K=128)
task words_64 = words(M=64, N=64, K=64)
task copy_64 = copy(M=64)
"""

Set = Callable[..., None]


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> Set:
    """Sets what the instructions are measured at: a list for each, taken from the front as long as there is more than one."""
    monkeypatch.setattr(roof, "PAUSE", 0.0)
    monkeypatch.setattr(roof, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(backend, "bandwidth", lambda *_: 1e10)

    def given(**by_word: list[float]) -> None:
        def peak(instruction: Instruction, _: Target, threads: int) -> float:
            found = by_word[instruction.title.split()[1]]
            return threads * (found.pop(0) if len(found) > 1 else found[0])

        monkeypatch.setattr(backend, "peak", peak)

    return given


@pytest.fixture
def tasks() -> TaskFile:
    return tensorc_dsl.loads(FILE, threads=1, mcpu="sapphirerapids")


def test_the_fastest_of_what_can_do_the_work_counts(tasks: TaskFile, rates: Set) -> None:
    """On some processors f32 is faster than the dot products of bf16, and kernels came out above 100 %."""
    rates(dot=[100e9], FMA=[200e9])
    found = Roof([tasks["bf16_64"]], 1)
    need = found.need(tasks["bf16_64"])
    assert (need.kind, found.peaks) == ("f32 FMA peak", {"f32 FMA peak": 200e9})
    product = roof_of(tasks["bf16_64"].program, tasks["bf16_64"].target, 1)
    assert need.seconds(found.peaks) == pytest.approx(product.share(1.0))
    rates(dot=[300e9], FMA=[200e9])
    assert Roof([tasks["bf16_64"]], 1).need(tasks["bf16_64"]).kind == "bf16 dot peak"


def test_a_peak_only_rises(tasks: TaskFile, rates: Set) -> None:
    rates(dot=[1e9], FMA=[50e9, 60e9, 40e9, 70e9, 10e9])
    found = Roof([tasks["bf16_64"]], 1)
    assert found.peaks == {"f32 FMA peak": 60e9}
    found.need(tasks["bf16_128"])
    assert found.peaks == {"f32 FMA peak": 70e9}


def test_what_has_no_peak_has_no_share(tasks: TaskFile, rates: Set) -> None:
    rates(dot=[1e9], FMA=[1e9])
    found = Roof([tasks["words_64"], tasks["copy_64"]], 1)
    assert found.need(tasks["words_64"]).seconds(found.peaks) is None
    assert found.need(tasks["copy_64"]).seconds({}) == pytest.approx(512 / 1e10)
    assert found.peaks == {}
    assert Need("", 0, 1.0).seconds({}) == 1.0


def test_each_kind_of_work_is_measured_once_before_the_first_row(
    tasks: TaskFile, rates: Set, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates(dot=[1e9], FMA=[1e9])
    seen: list[str] = []
    need = Roof.need
    monkeypatch.setattr(Roof, "need", lambda self, task: (seen.append(task.name), need(self, task))[1])
    Roof(tasks.values(), 1)
    assert seen == ["bf16_128", "words_64", "copy_64"]
