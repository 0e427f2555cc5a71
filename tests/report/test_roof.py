"""The roof of a kernel: the peak of its own types, or the bandwidth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorc_dsl import load
from tensorc_dsl.backend.llvm import backend
from tensorc_dsl.backend.llvm.runtime.peak import (
    DOT_BF16,
    DOT_U8I8,
    FMA,
    MULTIPLIERS,
    Instruction,
    peak,
    peak_instructions,
)
from tensorc_dsl.ir.dtypes import F16, F32, F64, I32, DType
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.work import bytes_needed, sizing
from tensorc_dsl.tuning.machine import roof
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.machine.roof import Rates, roof_of
from tests.compute.texts import build, made, std

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PRODUCT = "compute f(A: {t}[M, K], B: {u}[K, N]) -> C: {v}[M, N] {{ C[i, j] = sum[k] {a} * {b} }}"


@pytest.fixture(autouse=True)
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 100 G operations/s in f32 and more in narrower types, and of 10 GB/s."""
    monkeypatch.setattr(backend, "peak", lambda i, _t, threads: threads * 100e9 * i.operations / 2 * 32 / i.bits)
    monkeypatch.setattr(backend, "bandwidth", lambda _t, _n, _size: 10e9)


def product(t: str, u: str, v: str, size: int = 256) -> roof.Roof:
    a, b = (x if kind == v else f"{v}({x})" for x, kind in (("A[i, k]", t), ("B[k, j]", u)))
    program = build(PRODUCT.format(t=t, u=u, v=v, a=a, b=b), M=size, N=size, K=size)
    target = Target(cpu="sapphirerapids", vector_bits=512)
    return roof_of(program, target, 1)


@pytest.mark.parametrize(
    ("types", "title", "peak_"),
    [
        (("f32", "f32", "f32"), "f32 FMA peak", 100e9),
        (("f64", "f64", "f64"), "f64 FMA peak", 50e9),
        (("f16", "f16", "f16"), "f16 FMA peak", 200e9),
        (("f16", "f16", "f32"), "f32 FMA peak", 100e9),
        (("bf16", "bf16", "f32"), "bf16 dot peak", 200e9),
        (("u8", "i8", "i32"), "8-bit VNNI peak", 400e9),
        (("i8", "i8", "i32"), "8-bit VNNI peak", 400e9),
        (("i32", "i32", "i32"), "i32 multiply-add peak", 100e9),
        (("i64", "i64", "i64"), "i64 multiply-add peak", 50e9),
        (("i32", "i32", "i64"), "", None),
        (("i8", "i8", "i8"), "", None),
        (("i16", "i16", "i32"), "", None),
    ],
)
def test_the_peak_is_that_of_the_types(types: tuple[str, str, str], title: str, peak_: float | None) -> None:
    found = product(*types)
    assert (found.title, found.peak) == (title, peak_)
    assert found.operations == 2 * 256**3
    assert found.unit == ("GFLOP/s" if types[2].startswith("f") else "Gop/s")
    assert found.share(1.0) == (None if peak_ is None else pytest.approx(2 * 256**3 / peak_))


def test_sums_of_integers_are_held_against_sums() -> None:
    """Multiplications of integers take longer: a kernel without any was said to run at 113 % of their peak."""
    text = "compute f(A: i64[M, K], B: i64[K, N]) -> C: i64[M, N] { C[i, j] = sum[k] max(A[i, k], B[k, j]) }"
    assert roof_of(build(text, M=64, N=64, K=64), Target(), 1).title == "i64 addition peak"


def test_memory_bounds_what_computes_little() -> None:
    added = roof_of(build("compute f(A: f32[M], B: f32[M]) -> C: f32[M] { C[i] = A[i] + B[i] }", M=10**6), Target(), 1)
    assert (added.by_memory, added.unit, added.bytes_, added.limit) == (True, "GB/s", 12 * 10**6, pytest.approx(10e9))
    assert added.share(2.4e-3) == pytest.approx(0.5)
    assert added.described(2.4e-3) == "5.00 GB/s, 50 % of bandwidth"
    copied = roof_of(build("compute f(A: i8[M, N]) -> C: i8[N, M] { C[j, i] = A[i, j] }", M=100, N=70), Target(), 1)
    assert (copied.operations, copied.by_memory, copied.bytes_) == (0, True, 14000)
    softmax = roof_of(made(std("softmax"), M=512, N=512), Target(), 1)
    assert softmax.by_memory
    assert not product("f32", "f32", "f32").by_memory
    assert product("f32", "f32", "f32", 4).by_memory


def test_only_what_is_read_has_to_be_moved() -> None:
    text = "compute f(W: f32[V, D], I: i32[N]) -> Y: f32[N, D] { Y[n, d] = W[clamp(I[n], 0, V - 1), d] }"
    rows = roof_of(build(text, V=10**6, D=64, N=100), Target(), 1)
    assert rows.bytes_ == 4 * (100 * 64 + 100 + 100 * 64)  # not the 256 MB of the table
    text = "compute f(A: f32[M]) -> Y: f32[N] { Y[n] = A[3 * n] }"
    assert roof_of(build(text, M=30_000, N=10_000), Target(), 1).bytes_ == 80_000


def test_open_sizes_weigh_as_their_times_do() -> None:
    task = next(iter(load(EXAMPLES / "dense_any.tsched").values()))
    found = roof_of(task.program, task.target, 1)
    sizes = sizing(task.program)
    bytes_ = [bytes_needed(bind(task.program, x)) for x in sizes.timed]
    assert len(bytes_) > 1
    assert found.operations == task.flops
    assert found.bytes_ == round(sum(w * n for w, n in zip(sizes.weights, bytes_, strict=True)))
    assert found.moving == pytest.approx(found.bytes_ / 10e9, rel=1e-3)


@pytest.mark.parametrize(
    ("cpu", "bits", "wanted"),
    [("sapphirerapids", 512, (DOT_BF16, FMA)), ("skylake-avx512", 512, (FMA,)), ("haswell", 256, (FMA,))],
)
def test_a_target_has_what_its_cpu_has(cpu: str, bits: int, wanted: tuple[Instruction, ...]) -> None:
    work = next(w for w, found in MULTIPLIERS.items() if DOT_BF16 in found)
    assert peak_instructions(work, Target(cpu=cpu, vector_bits=bits)) == wanted


@pytest.mark.parametrize("t", [F32, F64, F16, I32])
def test_every_peak_kernel_runs(t: DType) -> None:
    target = host_target()
    for work in MULTIPLIERS:
        if work.values == t:
            for instruction in peak_instructions(work, target):
                assert 1e8 < peak(instruction, target, 1, repeats=3) < 1e14
    assert DOT_U8I8.operations == 8


def test_rates_are_measured_once_for_several_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def peak(i: Instruction, _target: Target, _threads: int) -> float:
        asked.append(i)
        return 1e12

    def bandwidth(_target: Target, _threads: int, size: int) -> float:
        asked.append(size)
        return 1e9

    monkeypatch.setattr(backend, "peak", peak)
    monkeypatch.setattr(backend, "bandwidth", bandwidth)
    text = PRODUCT.format(t="f32", u="f32", v="f32", a="A[i, k]", b="B[k, j]")
    rates = Rates()
    found = [roof_of(build(text, M=m, N=64, K=64), Target(), 1, rates=rates) for m in (60, 63, 64)]
    known = list(asked)
    assert 65536 in known and 32768 not in known and found[0].moving < found[2].moving
    roof_of(build(text, M=61, N=64, K=64), Target(), 1, rates=rates)
    assert asked == known
