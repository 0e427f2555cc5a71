"""Views, and calls that take and make several tensors: against NumPy, in the reference, the interpreter and machine code."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

import tensorc_dsl
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.elaborate.bindings import OpenRange
from tensorc_dsl.faces.api import Task
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.nameless import nameless
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import blocks
from tensorc_dsl.proof.equivalence.validate import Valid
from tensorc_dsl.proof.sets.constants import preparation
from tensorc_dsl.tuning.measure.outcome import Status
from tests.compute.native import everywhere
from tests.compute.texts import build, checked, codes, errors, run

HEADS = """\
compute heads(Q: f32[H, L, D], K: f32[H, L, D], V: f32[H, L, D]) -> O: f32[H, L, D] {
    let S[h, i, j] = sum[d] Q[h, i, d] * K[h, j, d]
    let m[h, i] = max[j] S[h, i, j]
    let e[h, i, j] = exp((S[h, i, j] - m[h, i]) * rsqrt(f32(D)))
    let s[h, i] = sum[j] e[h, i, j]
    let U[h, i, c] = sum[j] e[h, i, j] * V[h, j, c]
    O[h, i, c] = U[h, i, c] / s[h, i]
}
"""

FUSED = f"""\
{HEADS}
compute fused(X: f32[L, W]; H: int = 3, D: int = 4) -> Y: f32[L, E] where W = 3 * H * D, E = H * D {{
    let Q[h in H, l, d in D] = view(X[l, h * D + d])
    let K[h in H, l, d in D] = view(X[l, (H + h) * D + d])
    let V[h in H, l, d in D] = view(X[l, (2 * H + h) * D + d])
    let O[h in H, l, d in D] = view(Y[l, h * D + d])
    O = heads(Q, K, V)
}}
"""


def test_attention_of_a_fused_projection_is_that_of_its_parts() -> None:
    p = build(FUSED, L=5)
    assert "/ 4" not in format_program(p) and "%" not in format_program(p)
    x = np.random.default_rng(0).standard_normal((5, 36)).astype(np.float32)
    q, k, v = x.reshape(5, 3, 3, 4).transpose(1, 2, 0, 3)
    apart = everywhere(build(HEADS, L=5, H=3, D=4), dict(zip("QKV", map(np.ascontiguousarray, (q, k, v)), strict=True)))
    whole = everywhere(p, {"X": x})
    np.testing.assert_allclose(whole["Y"], apart["O"].transpose(1, 0, 2).reshape(5, 12), 1e-6, 1e-6)


def test_schedules_of_views_are_proved_and_right() -> None:
    task: Task = tensorc_dsl.loads(f"use std.cpu\n{FUSED}\ntask t = fused(L=16, H=2, D=8)\n", threads=1)["t"]
    for seed in range(3):
        trace = task.sample(seed)
        assert not trace.refused
        assert isinstance(task.verify(trace), Valid)
    assert task.measure(task.sample(0)).status is Status.OK


@pytest.mark.parametrize("seed", range(12))
def test_views_are_slices_and_transposes(seed: int) -> None:
    """A random view of a view of an input, written into a random view of the output."""
    rng = random.Random(seed)
    rank = rng.randint(1, 3)
    shape = [rng.randint(3, 9) for _ in range(rank)]
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    lines, name, value = list[str](), "X", x
    for k in range(2):
        axes = [*range(value.ndim)]
        rng.shuffle(axes)
        begin = [rng.randrange(n) for n in value.shape]
        step = [rng.choice([1, 1, 2, -1]) for _ in value.shape]
        count = [
            (b // -s + 1) if s < 0 else (n - 1 - b) // s + 1 for n, b, s in zip(value.shape, begin, step, strict=True)
        ]
        every = ", ".join(f"i{a} in {count[a]}" for a in axes)
        at = ", ".join(
            f"{b} + {s} * i{a}".replace("+ -", "- ") for a, (b, s) in enumerate(zip(begin, step, strict=True))
        )
        lines.append(f"let V{k}[{every}] = view({name}[{at}])")
        picked = value[
            tuple(
                np.array([b + s * n for n in range(c)]) for b, s, c in zip(begin[:1], step[:1], count[:1], strict=True)
            )
        ]
        for a in range(1, value.ndim):
            picked = np.take(picked, [begin[a] + step[a] * n for n in range(count[a])], axis=a)
        name, value = f"V{k}", picked.transpose(axes)
    names = [f"j{a}" for a in range(value.ndim)]
    flat = list[str]()
    for a, n in enumerate(names):
        stride = int(np.prod(value.shape[a + 1 :], dtype=int))
        flat.append(f"{stride} * {n}")
    lines.append(
        f"let O[{', '.join(f'{n} in {s}' for n, s in zip(names, value.shape, strict=True))}] = view(Y[{' + '.join(flat)}])"
    )
    lines.append(f"O[{', '.join(names)}] = 2.0 * {name}[{', '.join(names)}]")
    text = (
        f"compute c(X: f32[{', '.join(map(str, shape))}]) -> Y: f32[{value.size}] {{\n    "
        + "\n    ".join(lines) + "\n}\n"
    )  # fmt: skip
    assert checked(text) == [], text
    np.testing.assert_array_equal(everywhere(build(text), {"X": x})["Y"], 2 * value.reshape(-1), err_msg=text)


CONCAT = """\
compute scaled(A: f32[M, N]; by: float = 2.0) -> B: f32[M, N] { B[i, j] = by * A[i, j] }
compute cat(A: f32[M, N], B: f32[M, K]) -> C: f32[M, W] where W = N + K {
    let left[i in M, j in N] = view(C[i, j])
    let right[i in M, j in K] = view(C[i, N + j])
    left[i, j] = A[i, j] + 1.0
    right = scaled(B)
}
"""


def test_parts_of_an_output_are_written_where_they_stand() -> None:
    p = build(CONCAT, M=3, N=4, K=2)
    assert [b.name for b in blocks(p)] == ["left", "right"] and p.buffers == ()
    a, b = np.ones((3, 4), np.float32), np.full((3, 2), 5, np.float32)
    np.testing.assert_array_equal(everywhere(p, {"A": a, "B": b})["C"], np.concatenate([a + 1, b * 2], 1))
    for sizes in ({"M": OpenRange(1, 9), "N": 4, "K": 2}, {"M": 3, "N": OpenRange(1, 9), "K": OpenRange(1, 5)}):
        assert build(CONCAT, **sizes).outputs[0].name == "C"


WRONG = {
    "not affine": ("view(X[i / 2, j])", 1),
    "a remainder": ("view(X[i, j % 2])", 1),
    "an element that data choose": ("view(X[I[i], j])", 1),
    "an expression": ("view(X[i, j] + 1.0)", 1),
    "a part of an expression": ("1.0 + view(X[i, j])", 1),
    "an argument by name": ("view(X[i, j], n=1)", 1),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_view_is_an_error(name: str) -> None:
    value, count = WRONG[name]
    text = f"compute f(X: f32[4, 4], I: i32[4]) -> Y: f32[4, 4] {{\n let V[i in 4, j in 4] = {value}\n Y[i, j] = V[i, j]\n}}"
    assert codes(text) == ["E0450"] * count


def test_a_view_stays_inside_its_tensor() -> None:
    text = "compute f(X: f32[4]) -> Y: f32[4] {\n let V[i in 4] = view(X[i + 1])\n Y[i] = V[i]\n}"
    assert codes(text) == ["E0411"]


PLACES = {
    "twice in one view": ("let V[i in 4, j in 2] = view(Y[i + j])\n V[i, j] = X[i]", "written twice"),
    "twice in two views": (
        "let V[i in 5] = view(Y[i])\n let W[i in 3] = view(Y[4 + i])\n V[i] = X[0]\n W[i] = X[1]",
        "an element of `Y` twice",
    ),
    "not all": ("let V[i in 4] = view(Y[2 * i])\n V[i] = X[i]", "have 4 elements, and it has 8"),
    "a view that nothing writes": (
        "let V[i in 4] = view(Y[2 * i])\n let W[i in 4] = view(Y[2 * i + 1])\n V[i] = X[i]",
        "have 4 elements",
    ),
    "itself, too": ("let V[i in 8] = view(Y[i])\n V[i] = X[0]\n Y[i] = X[0]", "E0450"),
}


@pytest.mark.parametrize("name", PLACES)
def test_each_element_of_an_output_is_written_once(name: str) -> None:
    lines, _ = PLACES[name]
    found = codes(f"compute f(X: f32[4]) -> Y: f32[8] {{\n {lines}\n}}")
    assert found and set(found) == {"E0450"}


def test_interleaved_views_are_an_output() -> None:
    text = (
        "compute f(A: f32[4], B: f32[4]) -> Y: f32[8] {\n let V[i in 4] = view(Y[2 * i])\n"
        " let W[i in 4] = view(Y[7 - 2 * i])\n V[i] = A[i]\n W[i] = B[i] + V[i]\n}"
    )
    a, b = np.arange(4, dtype=np.float32), np.full(4, 9, np.float32)
    y = everywhere(build(text), {"A": a, "B": b})["Y"]
    np.testing.assert_array_equal(y[::2], a)
    np.testing.assert_array_equal(y[::-2], a + b)


def test_a_view_that_is_not_written_yet_is_not_read() -> None:
    text = "compute f(X: f32[4]) -> Y: f32[4] {\n let V[i in 4] = view(Y[i])\n let t[i] = V[i]\n V[i] = t[i] + X[i]\n}"
    assert errors(text) != []


MOMENTS = """\
compute moments(X: f32[M, N]) -> A: f32[M], B: f32[M] {
    let s[i] = sum[j] X[i, j]
    let q[i] = sum[j] X[i, j] * X[i, j]
    A[i] = s[i] / f32(N)
    B[i] = q[i] / f32(N) - A[i] * A[i]
}
"""


def test_a_call_makes_several_tensors() -> None:
    norm = "compute norm(X: f32[M, N]) -> Y: f32[M, N] {\n let (mu, v) = moments(X)\n Y[i, j] = (X[i, j] - mu[i]) / v[i]\n}"
    text = MOMENTS + norm
    assert checked(text) == []
    x = np.random.default_rng(1).standard_normal((3, 7)).astype(np.float32)
    y = everywhere(build(text, M=3, N=7), {"X": x})["Y"]
    np.testing.assert_allclose(y, (x - x.mean(1, keepdims=True)) / x.var(1, keepdims=True), 1e-4, 1e-4)


def test_the_outputs_of_a_call_are_those_of_the_compute() -> None:
    text = f"{MOMENTS}compute both(X: f32[M, N]) -> P: f32[M], Q: f32[M] {{\n (P, Q) = moments(X)\n}}"
    p = build(text, M=3, N=7)
    x = np.random.default_rng(1).standard_normal((3, 7)).astype(np.float32)
    found = everywhere(p, {"X": x})
    np.testing.assert_allclose(found["P"], x.mean(1), 1e-5, 1e-5)
    np.testing.assert_allclose(found["Q"], x.var(1), 1e-4, 1e-4)


def test_nothing_is_computed_for_a_result_that_is_dropped() -> None:
    text = f"{MOMENTS}compute mean(X: f32[M, N]) -> Y: f32[M] {{\n let (mu, _) = moments(X)\n Y[i] = mu[i]\n}}"
    p = build(text, M=3, N=7)
    assert [b.name for b in blocks(p)] == ["mu_s", "mu", "Y"] and {b.name for b in p.buffers} == {"mu_s", "mu"}
    run(p)
    other = build(text.replace("(mu, _)", "(_, mu)"), M=3, N=7)
    assert len(blocks(other)) == 5
    run(other)


@pytest.mark.parametrize("line", ["let a = moments(X)", "let (a, b, c) = moments(X)", "let (a, a) = moments(X)"])
def test_each_result_of_a_call_has_a_place(line: str) -> None:
    text = f"{MOMENTS}compute f(X: f32[M, N]) -> Y: f32[M] {{\n {line}\n Y[i] = X[i, 0]\n}}"
    assert codes(text, M=2, N=2) == ["E0406" if "a, a" in line else "E0423"]


PLUS = "compute plus(A: f32[M, N], B: f32[M, N]) -> C: f32[M, N] { C[i, j] = A[i, j] + 2.0 * B[i, j] }\n"


@pytest.mark.parametrize(("a", "b"), [*product([(3, 4), (1, 4), (3, 1), (1, 1)], repeat=2)])
def test_one_element_along_a_dimension_of_the_result_is_all_of_it(a: tuple[int, int], b: tuple[int, int]) -> None:
    m, n = (max(x) for x in zip(a, b, strict=True))
    text = f"{PLUS}compute f(A: f32[{a[0]}, {a[1]}], B: f32[{b[0]}, {b[1]}]) -> C: f32[{m}, {n}] {{ C = plus(A, B) }}"
    p = build(text)
    assert p.buffers == ()
    x, y = np.random.default_rng(0).standard_normal(a), np.random.default_rng(1).standard_normal(b)
    found = everywhere(p, {"A": x.astype(np.float32), "B": y.astype(np.float32)})["C"]
    np.testing.assert_allclose(found, x + 2 * y, 1e-5, 1e-5)


def test_a_dimension_that_is_summed_over_is_not_spread() -> None:
    text = (
        "compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }\n"
        "compute f(A: f32[3, 4], B: f32[1, 5]) -> C: f32[3, 5] { C = matmul(A, B) }\n"
    )
    assert codes(text) == ["E0423"]


def test_views_of_a_called_compute_are_views_of_what_it_is_given() -> None:
    """The callee has views of its input and of its output, which are views of the caller's."""
    outer = (
        f"{FUSED}\ncompute layers(X: f32[L, 72]) -> Y: f32[24, L] {{\n"
        " let left[l, j in 36] = view(X[l, 2 * j])\n let right[l, j in 36] = view(X[l, 71 - 2 * j])\n"
        " let A[l in L, e in 12] = view(Y[e, l])\n let B[l in L, e in 12] = view(Y[23 - e, l])\n"
        " A = fused(left)\n B = fused(right)\n}\n"
    )
    x = np.random.default_rng(0).standard_normal((5, 72)).astype(np.float32)
    whole = everywhere(build(outer, L=5), {"X": x})["Y"]
    once = build(FUSED, L=5)
    for part, found in ((x[:, ::2], whole[:12].T), (x[:, :0:-2], whole[:11:-1].T)):
        want = everywhere(once, {"X": np.ascontiguousarray(part)})["Y"]
        np.testing.assert_allclose(found, want, 1e-5, 1e-6)


INTO = {
    "a scan": "V[i] = scan[i] init X[0] step V[i - 1] + X[i]",
    "positions": "W[i] = argmax[k in 4] X[k] * X[i]",
}


@pytest.mark.parametrize("name", ["a scan", "positions"])
def test_scans_and_positions_are_not_written_into_views(name: str) -> None:
    t = "i64" if name == "positions" else "f32"
    view = INTO[name][0]
    lines = f"let {view}[i in 4] = view(Y[3 - i])\n {INTO[name]}"
    text = f"compute f(X: f32[4]) -> Y: {t}[4] {{\n {lines}\n}}"
    assert codes(text) == ["E0450"]
    apart = lines.replace(f"{view}[i] =", "let t[i] =").replace(f"{view}[i - 1]", "t[i - 1]") + f"\n {view}[i] = t[i]"
    run(build(text.replace(lines, apart)))


def test_the_view_of_an_input_is_a_buffer_that_is_printed_and_read_back() -> None:
    p = build(FUSED, L=OpenRange(1, 9))
    text = format_program(p)
    assert 'buffer K: f32[3, L, 4] @("view", "[h, l, d] = X[l, h * 4 + d + 12]")' in text
    assert parse_program(Source("p", text)) == p
    whole = resolved(p)
    assert all(b.view is None for b in whole.buffers) and "X[vj, vh * 4 + vd + 12]" in format_program(whole)
    assert resolved(whole) is whole
    other = build(FUSED.replace("let K[h in H, l, d in D]", "let K[g in H, m, d in D]").replace("(H + h)", "(H + g)")
                  .replace("view(X[l, (H + g)", "view(X[m, (H + g)"), L=OpenRange(1, 9))  # fmt: skip
    assert other != p and nameless(other) == nameless(p)
    assert nameless(build(FUSED.replace("(2 * H + h)", "(H + h)"), L=OpenRange(1, 9))) != nameless(p)


NO_VIEW = {
    "no text of one": "X",
    "of nothing": "[i] = Z[0, i]",
    "of an output": "[i] = Y[i, 0]",
    "of other dimensions": "[i, j] = X[i, j]",
    "by a name that is none": "[i] = X[0, k]",
}


@pytest.mark.parametrize("name", NO_VIEW)
def test_a_buffer_of_a_program_that_is_no_view_is_refused(name: str) -> None:
    text = (
        'program p(X: f32[4, 4], Y: f32[4, 4]) {\n    buffer V: f32[4] @("view", "VIEW")\n'
        "    for i in 4, j in 4 {\n        block b {\n            spatial a in 4 = i\n            spatial c in 4 = j\n"
        "            Y[a, c] = V[c]\n        }\n    }\n}\n"
    )
    with pytest.raises(TschedError):
        parse_program(Source("p", text.replace("VIEW", NO_VIEW[name])))
    assert parse_program(Source("p", text.replace("VIEW", "[i] = X[0, i]"))).buffers[0].view is not None


def test_a_step_is_about_one_of_two_views_of_an_input() -> None:
    """Both operands of a product are parts of one input: each has a copy and a region of its own."""
    text = (
        f"use std.cpu\n{FUSED}\nschedule one for fused {{\n    let panels = cache_read(O_S, K)\n"
        "    transform_layout(panels, (h, j, d) -> (h, j / 4, d, j % 4))\n}\n"
        "task t = fused(L=6, H=2, D=4) with one\n"
    )
    task: Task = tensorc_dsl.loads(text, threads=1)["t"]
    trace = task.sample(0)
    assert not trace.refused and "K_global" in format_program(trace.program)
    assert isinstance(task.verify(trace), Valid)
    x = np.random.default_rng(0).standard_normal((6, 24)).astype(np.float32)
    np.testing.assert_allclose(task.replay(trace)(x), everywhere(task.program, {"X": x})["Y"], 1e-5, 1e-6)
    for step in ("transform_layout(Q, (h, l, d) -> (l, h, d))", 'set_scope(Q, "local")', "storage_align(Q, 0, 8, 0)"):
        refused = tensorc_dsl.loads(text.replace("let panels = cache_read(O_S, K)", step).replace(
            "    transform_layout(panels, (h, j, d) -> (h, j / 4, d, j % 4))\n", ""), threads=1)["t"]  # fmt: skip
        with pytest.raises(TschedError):
            refused.sample(0)


def test_windows_and_inputs_that_are_updated_have_no_view_of_their_own() -> None:
    window = "compute f(X: f32[9]) -> Y: f32[7] {\n let W[i in 7, k in 3] = view(X[i + k])\n Y[i] = sum[k] W[i, k]\n}"
    update = (
        "compute f(X: f32[8]) -> Y: f32[8] updates X {\n let V[i in 4, j in 2] = view(X[2 * i + j])\n"
        " let W[i in 4, j in 2] = view(Y[2 * i + j])\n W[i, j] = V[i, j] + 1.0\n}"
    )
    for text in (window, update):
        p = build(text)
        assert all(b.view is None for b in p.buffers)
        run(p)


def test_constant_inputs_of_called_computes_are_constant() -> None:
    """The caller's input too, where a view of it is passed on, and so that panels of it are packed once."""
    text = (
        "compute inner(A: f32[M, K], B: const f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }\n"
        "compute outer(A: f32[M, K], W: f32[N, K]) -> C: f32[M, N] {\n let B[k, j] = view(W[j, k])\n C = inner(A, B)\n}"
    )
    p = build(text, M=3, N=4, K=5)
    assert [b.name for b in p.params if b.constant] == ["W"] and [b.name for b in p.buffers if b.constant] == ["B"]
    assert parse_program(Source("p", format_program(p))) == p
    own = text.replace("B: const", "B:").replace("W: f32", "W: const f32")
    assert build(own, M=3, N=4, K=5) == p
    lines = f"use std.cpu\n{text}\nschedule s for outer {{ cache_read(C, B) }}\ntask t = outer(M=3, N=4, K=5) with s\n"
    kernel = tensorc_dsl.loads(lines, threads=1)["t"].sample(0)
    assert "B_global" in str(preparation(resolved(kernel.program)).prepared)


def test_a_view_that_leaves_its_tensor_has_a_repair_of_its_own() -> None:
    with pytest.raises(TschedError) as caught:
        build("compute f(X: f32[4]) -> Y: f32[4] {\n let V[i in 4] = view(X[i + 1])\n Y[i] = V[i]\n}")
    (found,) = caught.value.diagnostics
    assert found.code == "E0411" and "let V[i in …]" in "".join(n.text for n in found.notes)
