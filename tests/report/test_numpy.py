"""The NumPy row: derived from the program, and shown only with the right result."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl
from tensorc_dsl.ir.program import Program
from tensorc_dsl.tuning.machine import baseline
from tensorc_dsl.tuning.machine.baseline import fastest, has_numpy, numpy_seconds, numpy_texts, right_calls
from tests import programs
from tests.compute.texts import build

SIZES = {"M": 5, "N": 7, "K": 6, "H": 9, "W": 8, "CI": 3, "CO": 4, "G": 2}

SOFTMAX = """f(A: f32[M, K]) -> C: f32[M, K] {
    let m[i] = max[k] A[i, k]
    let e[i, k] = exp(A[i, k] - m[i])
    let s[i] = sum[k] e[i, k]
    C[i, k] = e[i, k] / s[i]
}"""

TEXTS = [
    # sums of products, with every pattern of subscripts that einsum has
    ("f(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }", "np.matmul(a0, a1)"),
    ("f(A: f32[K, M], B: f32[N, K]) -> C: f32[N, M] { C[j, i] = sum[k] A[k, i] * B[j, k] }", "np.matmul("),
    ("f(A: f64[G, M, K], C: f64[G, K, N]) -> D: f64[G, M, N] { D[b, i, j] = sum[k] A[b, i, k] * C[b, k, j] }", "np.matmul("),
    ("f(A: f32[M, M]) -> C: f32[1] { C[z] = sum[i] A[i, i] }", "(5,), ((1, 1),))"),
    ("f(A: f32[M, M], B: f32[M, N]) -> C: f32[N] { C[j] = sum[i] A[i, i] * B[i, j] }", "np.einsum("),
    ("f(A: f32[M, K], B: f32[N, K], C: f32[K]) -> D: f32[M, N] { D[i, j] = sum[k] A[i, k] * B[j, k] * C[k] }", "einsum"),
    ("f(A: f32[M], B: f32[N]) -> C: f32[M, N] { C[i, j] = A[i] * B[j] }", "*"),
    ("f(A: f32[M, K], B: f32[K]) -> C: f32[M] { C[i] = sum[k] A[i, k] * B[k] * 0.5 }", "np.float32(0.5)"),
    ("f(A: i8[M, K], B: u8[K, N]) -> C: i32[M, N] { C[i, j] = sum[k] i32(A[i, k]) * i32(B[k, j]) }", "astype(np.int32)"),
    ("f(A: f16[M, K], B: f16[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] f32(A[i, k]) * f32(B[k, j]) }", "np.float32"),
    ("f(A: f32[M, K], B: f32[K, N]) -> C: f32[M] { C[i] = sum[j, k] A[i, k] * B[k, j] }", "np.einsum("),
    ("f(A: f32[H, N], B: f32[M, K]) -> C: f32[M, N] { C[i, j] = sum[k in 4] A[2 * k + 1, j] * B[i, k + 2] }", "1:8:2"),
    # elements
    ("f(A: f32[M, N]) -> C: f32[N, M] { C[j, i] = A[i, j] }", ".copy()"),
    ("f(A: f32[M, N]) -> C: f32[M, N] { C[i, j] = A[M - 1 - i, j] }", "::-1"),
    ("f(A: f32[M, N], B: f32[N]) -> C: f32[M, N] { C[i, j] = max(A[i, j] + B[j], 0.0) }", "np.maximum"),
    ("f(A: f32[M, N]) -> C: f32[M] { C[i] = A[i, 0] - A[i, N - 1] }", "a0[:, 6]"),
    ("f(A: f32[M]) -> C: f32[M] { C[i] = tanh(A[i]) if A[i] > f32(i) else sigmoid(A[i]) * exp(-A[i]) }", "np.where"),
    ("f(A: i32[M]) -> C: i32[M] { C[i] = A[i] / 3 + A[i] % 4 }", "//"),
    ("f(A: f32[M]) -> C: f32[M, N] { C[i, j] = A[i] }", "broadcast_to"),
    ("f(A: f32[M, 1]) -> C: f32[M, N] { C[i, j] = A[i, 0] * 2.0 }", "broadcast_to"),
    # reductions
    ("f(A: f32[M, K]) -> C: f32[K] { C[k] = max[i] A[i, k] }", "np.maximum.reduce"),
    ("f(A: f64[M, K]) -> C: f64[M] { C[i] = sum[k] abs(A[i, k]) }", "np.add.reduce"),
    ("f(A: i8[M, K]) -> C: i8[M] { C[i] = sum[k] A[i, k] }", "dtype=np.int8"),
    ("f(A: f32[M, K], B: f32[N, K]) -> C: f32[M, N] { C[i, j] = sum[k] abs(A[i, k] - B[j, k]) }", "np.add.reduce"),
    # several stages, and data that choose
    (SOFTMAX, "np.exp"),
    ("f(A: f32[H, K], I: i32[N]) -> C: f32[N, K] { C[n, k] = A[clamp(I[n], 0, H - 1), k] }", "np.take(a0"),
    # windows
    ("f(A: f32[H, W], F: f32[3, 3]) -> C: f32[7, 6] { C[i, j] = sum[a, b] A[i + a, j + b] * F[a, b] }", "(7, 6, 3, 3), ((1"),
    ("f(A: f32[H], F: f32[3]) -> C: f32[5] { C[i in 5] = sum[a in 3] A[i + 2 * a] * F[2 - a] }", "((1,), (2,))"),
    ("f(A: f32[H], F: f32[3]) -> C: f32[7] { C[i] = sum[a] A[i + 2 - a] * F[a] }", "(2,), (7, 3), ((1,), (-1,))"),
    ("f(A: f32[H, K]) -> C: f32[4, K] { C[i, k] = max[a in 2] A[2 * i + a, k] }", "np.maximum.reduce"),
    ("f(A: f32[H]) -> C: f32[7, 3] { C[i, a] = A[i + a] }", ".copy()"),
    ("f(A: f32[H, H]) -> C: f32[7] { C[i] = sum[a in 3] A[i + a, i + a] }", "((1, 1), (1, 1))"),
    ("f(A: f32[20]) -> C: f32[M, 4] { C[i, j in 4] = A[i * 4 + j] }", "((4,), (1,))"),
    ("f(A: f32[20]) -> C: f32[2, 3, 2] { C[i, j, k] = A[i * 6 + j * 2 + k] }", "((6,), (2,), (1,))"),
    # borders, and arrays behind each other
    ("f(A: f32[M]) -> C: f32[M] { C[i] = A[i - 1] if i >= 1 else 0.0 }", "[1:5:1] = a0[0:4:1]"),
    ("f(A: f32[M]) -> C: f32[9] { C[i] = A[i - 2] if 2 <= i < M + 2 else 1.5 }", "[2:7:1] = a0"),
    ("f(A: f32[M, N]) -> C: f32[9, 10] { C[i, j] = A[i - 2, j] if 2 <= i < M + 2 and j < N else 0.0 }", ":7:1] = a0"),
    ("f(A: f32[M, K], B: f32[N, K]) -> C: f32[12, K] { C[i, k] = A[i, k] if i < M else B[i - M, k] }", "[5:12:1, :] = a1"),
    ("f(A: f32[M, K], B: f32[M, N]) -> C: f32[M, 13] { C[i, j] = B[i, j - K] if j >= K else A[i, j] }", "[:, 6:13:1] = a1"),
    ("f(A: f32[M], B: f32[N], D: f32[K]) -> C: f32[18] { C[i] = A[i] if i < M else B[i - M] if i < M + N else D[i - M - N] }",
     "[5:18:1] = v0"),
    ("f(A: f32[M], B: f32[K]) -> C: f32[K, M] { C[k, i] = A[i] if i == 2 else B[k] }", "[:, 2:3:1] = "),
    ("f(A: f32[M, N]) -> C: f32[M, N] { C[i, j] = A[i, j] * (A[i, j - 1] if j >= 1 else 2.0) }", "(a0 * v0)"),
    ("f(A: f32[M]) -> C: f32[1] { C[z] = sum[i in 7] (A[i - 1] if 1 <= i <= M else 0.0) }", "np.add.reduce"),
    ("f(A: f32[H], F: f32[3]) -> C: f32[H] { C[i] = sum[a] (A[i + a - 1] if 1 <= i < 5 else 0.0) * F[a] }", "[1:5:1, :] ="),
    ("f(A: f32[M]) -> C: f32[M] { C[i] = A[i] if i < 9 else 0.0 }", "a0.copy()"),
    ("f(A: f32[M]) -> C: f32[M] { C[i] = A[i - 7] if i >= 7 else 3.0 }", "np.float32(3.0)"),
    ("f(A: f32[M, N]) -> C: f32[M] { C[i] = A[i, 3] if i * 2 < 3 * M else 0.0 }", "a0[:, 3].copy()"),
    # positions that are computed
    ("f(A: f32[M]) -> C: f32[10] { C[i] = A[i / 2] }", "np.take(a0"),
    ("f(A: f32[M]) -> C: f32[M] { C[i] = A[(i + 3) % M] }", "np.take(a0"),
    ("f(A: f32[M, N]) -> C: f32[9, N] { C[i, j] = A[clamp(i - 2, 0, M - 1), N - 1 - j] }", "np.take(a0[:, 6::-1]"),
    ("f(A: f32[M, N]) -> C: f32[35] { C[i] = A[i / N, i % N] }", ".reshape("),
    ("f(A: f32[M, N]) -> C: f32[10] { C[i] = A[i / 2, i % 3] }", "np.take(a0.reshape((35,)),"),
    ("f(A: f32[M, H]) -> C: f32[5, 4, K] { C[i in 5, j in 4, k] = A[(k * k) % M, i + j] }", "np.take(view("),
    ("f(A: f32[M, N, K]) -> C: f32[210] { C[i] = A[i / (N * K), i / K % N, i % K] }", ".reshape("),
    # so far
    ("f(A: f32[M]) -> C: f32[M] { C[t] = scan[t] init A[0] step C[t - 1] + A[t] }", "np.add.accumulate(a0, axis=0"),
    ("f(A: f32[M, N]) -> C: f32[M, N] { C[t, j] = scan[t] init A[0, j] step max(A[t, j], C[t - 1, j]) }", "maximum.acc"),
    ("f(A: i8[M, N]) -> C: i8[N, M] { C[j, t] = scan[t] init A[0, j] step C[j, t - 1] * A[t, j] }", "axis=1, dtype=np.int8"),
    ("f(A: f32[M], B: f32[N]) -> C: f32[M, N] { C[t, j] = scan[t] init B[j] step C[t - 1, j] + A[t] * B[j] }", "mulate(v0"),
    ("f(A: f32[M]) -> C: f32[M, N] { C[t, j] = scan[t] init A[0] step C[t - 1, j] + A[t] }", "broadcast_to"),
]  # fmt: skip

WITHOUT = [
    "f(A: f32[M], B: f32[M]) -> C: f32[M] { C[t] = scan[t] init A[0] step C[t - 1] * B[t] + A[t] }",  # a recurrence
    "f(A: f32[M]) -> C: f32[M] { C[t] = scan[t] init A[0] step A[t] - C[t - 1] }",  # differences do not associate
    "f(A: f32[M]) -> C: f32[M] { C[t] = scan[t] init A[0] step C[t - 1] + C[t - 1] }",
    "f(A: f32[M]) -> C: f32[M] { C[t] = scan[t] init A[0] step (C[t - 2] if t >= 2 else 0.0) + A[t] }",
    "f(A: f32[M]) -> C: f32[M] { C[i] = erf(A[i]) }",
    "f(A: f32[M, N], I: i32[K]) -> C: f32[K] { C[i] = A[clamp(I[i], 0, M - 1), (i * i) % 3] }",  # data and a position
    "f(A: bf16[M]) -> C: bf16[M] { C[i] = A[i] }",
    "f(A: f32[M, K]) -> C: i32[M] { C[i] = argmax[k] A[i, k] }",  # a position
    "f(A: f32[M, K, N]) -> C: f32[7, 10] { C[k, i] = A[i / 2, 3, i % 3] * f32(k) }",  # two dimensions apart
    "f(A: f32[M]) -> C: f32[M] { C[i] = A[i - 1] if A[i] > 0.0 and i >= 1 else 0.0 }",  # data decide what is read
]


def of(text: str) -> Program:
    inside = " ".join(re.findall(r"\[([^\]]*)\]", text.partition("{")[0]))
    return build(f"compute {text}", **{n: s for n, s in SIZES.items() if re.search(rf"\b{n}\b", inside)})


@pytest.mark.corpus
@pytest.mark.parametrize(("text", "part"), TEXTS)
def test_what_numpy_can_do_is_derived_and_is_right(text: str, part: str) -> None:
    program = of(text)
    texts = numpy_texts(program)
    assert any(part in t for t in texts), texts
    with np.errstate(all="ignore"):
        calls, faults = right_calls(program)
    assert (len(calls), faults) == (len(texts), [])


@pytest.mark.parametrize("text", WITHOUT)
def test_what_numpy_has_no_function_for_has_no_row(text: str) -> None:
    assert numpy_texts(of(text)) == ()
    assert not has_numpy(of(text))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("matmul", {"M": 5, "N": 7, "K": 3}), ("batch_matmul", {"G": 2, "M": 3, "N": 4, "K": 5}),
        ("softmax", {"M": 5, "N": 7}), ("layer_norm", {"M": 5, "N": 7}), ("transpose", {"M": 5, "N": 7}),
        ("conv1d_nlc", {"N": 2, "L": 9, "CI": 3, "CO": 4, "KL": 3, "pad": 1}),
        ("conv2d_nhwc", {"N": 2, "H": 8, "W": 7, "CI": 3, "CO": 4, "KH": 3, "KW": 2, "pad": 1, "stride": 2}),
        ("conv2d_nhwc", {"N": 1, "H": 9, "W": 9, "CI": 2, "CO": 3, "KH": 3, "KW": 3, "dilation": 2}),
        ("depthwise_conv2d_nhwc", {"N": 2, "H": 8, "W": 7, "C": 3, "KH": 3, "KW": 3, "pad": 1}),
        ("conv2d_transpose_nhwc", {"N": 1, "H": 4, "W": 5, "CI": 3, "CO": 2, "KH": 4, "KW": 4, "stride": 1, "pad": 1}),
        ("max_pool2d_nhwc", {"N": 2, "H": 8, "W": 7, "C": 3, "pad": 1}),
        ("avg_pool2d_nhwc", {"N": 2, "H": 8, "W": 6, "C": 3}),
        ("pad_nhwc", {"N": 2, "H": 8, "W": 7, "C": 3}), ("concatenate", {"M": 5, "N": 7, "K": 3}),
        ("cumsum", {"N": 5, "M": 7}),
    ],
)  # fmt: skip
def test_the_library(name: str, sizes: dict[str, int]) -> None:
    given = ", ".join(f"{k}={v}" for k, v in sizes.items())
    text = f"use std.cpu\nuse std.ops.{{{name}}}\ntask t = {name}({given})\n"
    program = tensorc_dsl.loads(text)["t"].program
    assert numpy_texts(program)
    calls, faults = right_calls(program)
    assert calls and not faults


def test_the_row_is_timed_in_a_process_of_its_own() -> None:
    timed = numpy_seconds(programs.matmul(5, 7, 3), 1)
    assert timed is not None
    assert timed.seconds > 0


def test_what_computes_something_else_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong, said in (
        ("def call(a, b):\n    return (a @ b + np.float32(1e-3), )\n", "elements are wrong"),
        ("def call(a, b):\n    return ((a @ b).T, )\n", "has shape"),
        ("def call(a, b):\n    return (np.zeros((5, 7), np.float32), )\n", "elements are wrong"),
    ):
        monkeypatch.setattr(baseline, "numpy_texts", lambda _, wrong=wrong: (wrong,))
        calls, faults = right_calls(programs.matmul(5, 7, 3))
        assert calls == []
        assert said in faults[0]


@dataclass
class Rounds:
    """A clock, and a call that takes another time in each round."""

    seconds: tuple[float, ...]
    now: float = 0.0
    round: int = 0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, _: float) -> None:
        self.round += 1

    def call(self) -> None:
        self.now += self.seconds[self.round]


@pytest.mark.parametrize(
    ("seconds", "rounds", "disturbed"),
    [
        ((0.05,) * 12, 4, False),
        ((0.05, 0.0503, 0.0501, 0.07, 0.05), 4, False),
        ((0.05, 0.06, 0.07, 0.05, 0.0501), 5, False),
        ((0.05, 0.05, 0.04, 0.05, 0.05, 0.0401, 0.04), 7, False),  # what is met again is the fastest of all
        (tuple(0.05 + 0.01 * n for n in range(12)), 12, True),
        (tuple(0.05 + 0.001 * n for n in range(12)), 12, False),  # not the same, but no disturbance
        ((0.5, 0.4, 0.3, 0.4, 0.3, 0.3), 6, False),  # a call that is longer than a round
    ],
)
def test_rounds_go_on_until_several_have_the_fastest_call(
    seconds: tuple[float, ...], rounds: int, disturbed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Rounds(seconds)
    monkeypatch.setattr(baseline, "time", clock)
    found = fastest([clock.call])
    assert (found.seconds, found.disturbed) == (pytest.approx(min(seconds[:rounds])), disturbed)
    assert clock.round == rounds - 1


def test_a_process_that_waits_for_longer_than_a_round_has_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An infinite one has no text: `tune` ended in an internal error."""

    class Stalled(Rounds):
        def perf_counter(self) -> float:
            self.now += 1.0  # each look at the clock is a second after the one before
            return self.now

    clock = Stalled((0.05,) * 12)
    monkeypatch.setattr(baseline, "time", clock)
    assert fastest([clock.call, clock.call]).seconds == pytest.approx(1.05)


def test_a_child_that_fails_gives_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert numpy_seconds(programs.matmul(5, 7, 3), 1) is None


def test_a_child_that_takes_too_long_gives_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "LIMIT", 1e-6)
    assert numpy_seconds(programs.matmul(5, 7, 3), 1) is None


def test_a_file_called_numpy_is_not_taken_for_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert numpy_seconds(programs.matmul(5, 7, 3), 1) is not None
