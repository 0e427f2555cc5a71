"""What is behind the last whole tile of open sizes: as many rows as there are, without a test of each in each step."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from tensorc_dsl import Task, loads
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.lower.flat import format_body
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.tuning.measure.check import Guarded, read_only
from tests.codegen.native import compiled, program

TEXT = """
compute product(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
compute chain(A: f32[M, 5], B: f32[5, M], V: f32[M, 16]) -> C: f32[M, 16] {
    let S[i, j] = sum[k] A[i, k] * B[k, j]
    C[i, c] = sum[j] S[i, j] * V[j, c]
}

schedule tiled for product {
    let sums = cache_write(C, "local")
    let [i, j, k] = C.loops
    let [i0, i1] = split(i, [_, 4], partial=true)
    let [j0, j1] = split(j, [_, 16], partial=true)
    reorder(j0, i0, k, i1, j1)
    reverse_compute_at(sums, i0)
    let zero = decompose_reduction(C, k)
    for b in [C, zero, sums] {
        unroll(b.loops[-2])
        vectorize(b.loops[-1])
    }
    parallel(j0)
}

/// Some of the sums are stored by a loop that is no part of the tile: it has all of its rows.
schedule apart for product {
    let [i, j, k] = C.loops
    let [i0, i1] = split(i, [_, 4], partial=true)
    reorder(i0, k, i1, j)
    unroll(i1)
}

/// The columns of a tile are lanes, and panels of `B` are whole.
schedule packed for product {
    let panels = cache_read(C, B)
    transform_layout(panels, (k, j) -> (j / 16, k, j % 16))
    let sums = cache_write(C, "local")
    let [i, j, k] = C.loops
    let [i0, i1] = split(i, [_, 4], partial=true)
    let [j0, j1] = split(j, [_, 16], partial=true)
    reorder(j0, i0, k, i1, j1)
    reverse_compute_at(sums, i0)
    let zero = decompose_reduction(C, k)
    for b in [C, zero, sums] {
        unroll(b.loops[-2])
        vectorize(b.loops[-1])
    }
}

/// Panels are written out: of each there may be all columns, some, or none.
schedule written for product {
    let panels = cache_read(C, B)
    transform_layout(panels, (k, j) -> (j / 16, k, j % 16))
    let sums = cache_write(C, "local")
    let [i, j, k] = C.loops
    let [i0, i1] = split(i, [_, 4], partial=true)
    let [j0, j1, j2] = split(j, [_, 3, 16], partial=true)
    reorder(j0, i0, j1, k, i1, j2)
    reverse_compute_at(sums, j1)
    let zero = decompose_reduction(C, k)
    for b in [C, zero, sums] {
        unroll(b.loops[-2])
        vectorize(b.loops[-1])
    }
    unroll(j1)
}

schedule pieces for chain {
    let [i, c, j] = C.loops
    let [far, near] = split(i, [_, 32], partial=true)
    compute_at(S, far)
    let [_, row, column, k] = S.loops
    let [r0, r1, r2] = split(row, [4, 4, 2])
    let [c0, c1] = split(column, [_, 64], partial=true)
    reorder(r0, c0, r1, c1, k, r2)
    let [n0, n1, n2] = split(near, [2, 2, 8])
    reorder(n0, n1, j, n2, c)
    unroll(n2)
    vectorize(c)
    parallel(far)
}

task product = product(M=0..19, N=20, K=7) with tiled
task wide = product(M=1..19, N=1..40, K=7) with tiled
task packed = product(M=1..19, N=1..40, K=7) with packed
task written = product(M=1..19, N=1..40, K=7) with written
task apart = product(M=0..19, N=20, K=7) with apart
task chain = chain(M=1..140) with pieces
"""


def integers(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]


def code_of(task: Task) -> str:
    return task.lowered_text(task.sample(0))


def test_a_register_tile_has_code_for_each_number_of_rows() -> None:
    code = code_of(loads(TEXT, threads=2)["product"])
    rows = re.findall(r"if M % 4 == (\d) \{\s+with C_local", code)
    assert rows == ["1", "2", "3"] * (len(rows) // 3) and rows
    assert sorted(set(re.findall(r"unrolled for i_1 in 0 \.\. (\d)", code))) == ["1", "2", "3", "4"]
    for steps in code.split("for k in 0 .. 7 {")[1:]:
        assert "M" not in steps.partition("C_local[")[0]


def test_loops_over_rows_end_where_the_rows_do() -> None:
    code = code_of(loads(TEXT, threads=2)["chain"])
    assert set(re.findall(r"for j_1_1 in 0 \.\. (.*) \{", code)) == {"64", "M % 64"}
    assert set(re.findall(r"for i_1 in 0 \.\. (.*) \{", code)) == {"4", "(M % 8 + 1) / 2"}
    # No serial loop tests in each step whether its row is there.
    assert not re.search(r"\n +for (\w+) in 0 \.\. [^{]*\{\n +if \1", code)


@pytest.mark.parametrize("name", ["product", "apart"])
def test_products_are_right_for_all_rows(name: str) -> None:
    task = loads(TEXT, threads=2)[name]
    kernel = task.replay(task.sample(0))
    a, b = integers(0, (19, 7), (7, 20))
    for m in range(20):
        assert np.array_equal(kernel(a[:m].copy(), b), a[:m] @ b)


@pytest.mark.parametrize("name", ["wide", "packed", "written"])
def test_products_are_right_for_all_rows_and_columns(name: str) -> None:
    task = loads(TEXT, threads=2)[name]
    kernel = task.replay(task.sample(0))
    a, b = integers(1, (19, 7), (7, 40))
    for n in range(1, 41):
        guard = Guarded((7, n), np.dtype(np.float32))
        guard.array[...] = b[:, :n]
        for m in range(1, 20):
            assert np.array_equal(kernel(a[:m].copy(), read_only(guard.array)), a[:m] @ b[:, :n])


def updates(code: str, tile: str = "C_local") -> list[tuple[str, str]]:
    """The line before each update of a tile, and the update."""
    lines = [x.strip() for x in code.splitlines()]
    return [(a, b) for a, b in pairwise(lines) if b.startswith(f"{tile}[") and f" = {tile}[" in b]


def test_lanes_that_nobody_reads_are_computed_as_well() -> None:
    code = code_of(loads(TEXT, threads=2)["packed"])
    # What is behind the last column is not stored, and only the last vector that is there has a mask.
    assert "if N % 16 < 8 {" in code
    stored = code[code.index("if N % 16 >= 8 {") :]
    assert re.match(
        r"[^}]*in 0 \.\. 8 \{\s+C\[[^}]*\}\s+vectorized for \w+ in 8 \.\. 16 \{\s+if \w+ < N % 16 \{", stored
    )
    assert updates(code)
    for before, update in updates(code):
        assert before.startswith("vectorized for j_1"), before
        assert " if " not in update


def test_nothing_is_read_behind_the_last_column_of_an_array() -> None:
    found = updates(code_of(loads(TEXT, threads=2)["wide"]))
    assert all(before.startswith("vectorized for j_1") for before, _ in found)
    masked = [update for _, update in found if "N / 16" in update]
    assert masked and all("B[" in x and x.endswith("if j_1 < N % 16 else 0.0)") for x in masked)


LANES = """
program f(A: {t}[W], B: {t}[5, W], Y: {t}[W]) where W in 1..99 {{
    buffer S: {t}[W] in "local"
    for far in (W + 15) / 16 {{
        for k in 5 {{ vectorized for near in 16 {{ block S {{
            spatial w in W = far * 16 + near; reduce vk in 5 = k
            where far * 16 + near < W
            init {{ S[w] = {start} }}
            S[w] = S[w] + {value}
        }} }} }}
        vectorized for last in 16 {{ block Y {{
            spatial w in W = far * 16 + last
            where far * 16 + last < W
            Y[w] = {read}
        }} }}
    }}
}}
"""


def test_other_stores_of_a_nest_have_all_of_their_lanes() -> None:
    """A nest that stores a tile stores something else as well, for lanes behind the last column, too."""
    text = LANES.format(t="f32", start="0.0", value="B[vk, w]", read="S[w]")
    more = "block Z { spatial z in W + 15 = far * 16 + last; where far * 16 + last < W + 15; Z[z] = 1.0 }"
    text = text.replace("Y: f32[W])", "Y: f32[W], Z: f32[W + 15])").replace(
        "= S[w]\n        } }", f"= S[w]\n        }}\n {more} }}"
    )
    p = program(text)
    kernel = load(compiled(p))
    for w in (1, 7, 8, 9, 16, 17, 30):
        b = np.random.default_rng(w).integers(-9, 9, (5, w)).astype(np.float32)
        y, z = kernel(np.zeros(w, np.float32), b)
        np.testing.assert_array_equal(y, b.sum(axis=0), err_msg=str(w))
        np.testing.assert_array_equal(z[: (w + 15) // 16 * 16], 1.0, err_msg=str(w))


@pytest.mark.parametrize(
    ("t", "start", "value", "read", "is_filled"),
    [
        ("f32", "0.0", "B[vk, w]", "S[w]", True),
        ("i32", "0", "B[vk, w]", "S[w]", True),
        ("f32", "0.0", "B[vk, w]", "S[w] + S[max(w - 1, w / 16 * 16)]", False),
        ("i32", "0", "A[w] / B[vk, w]", "S[w]", False),
        ("f32", "0.0", "exp(B[vk, w])", "S[w]", False),
    ],
)
def test_guards_stay_where_lanes_are_read_or_may_not_be_computed(
    t: str, start: str, value: str, read: str, is_filled: bool
) -> None:
    p = program(LANES.format(t=t, start=start, value=value, read=read))
    code = format_body(lower_cpu(p).body)
    tail = [before for before, update in updates(code, "S") if "W / 16" in update or "W % 16" in before]
    assert tail and all(before.startswith("if ") != is_filled for before in tail), code
    kernel = load(compiled(p))
    rng = np.random.default_rng(0)
    for w in (1, 2, 15, 16, 17, 31, 33, 97):
        inputs = {"A": rng.integers(1, 50, w), "B": rng.integers(1, 9, (5, w))}
        inputs = {name: x.astype({"f32": np.float32, "i32": np.int32}[t]) for name, x in inputs.items()}
        guards = {name: Guarded(x.shape, x.dtype) for name, x in inputs.items()}
        for name, x in inputs.items():
            guards[name].array[...] = x
        found = kernel(*(read_only(guards[name].array) for name in inputs))
        want = interpret(bind(p, {"W": w}), inputs)["Y"]
        np.testing.assert_allclose(found, want, rtol=1e-6, err_msg=str(w))


def test_chains_are_right_for_all_lengths() -> None:
    task = loads(TEXT, threads=2)["chain"]
    kernel = task.replay(task.sample(0))
    for m in range(1, 141):
        a, b, v = integers(m, (m, 5), (5, m), (m, 16))
        assert np.array_equal(kernel(a, b, v), a @ b @ v)
