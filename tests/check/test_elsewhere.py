"""Mistakes of people who know NumPy, TVM, Halide or Triton: each has a repair, and the repaired text has no error."""

from __future__ import annotations

import pytest

from tensorc_dsl import TschedError, loads

MATMUL = """\
compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
"""


def compute(head: str, body: str) -> str:
    return f"compute f({head} {{ {body} }}\n"


def schedule(statement: str) -> str:
    return f"{MATMUL}schedule s for matmul {{\n    let [i, j, k] = C.loops\n    {statement}\n}}\n"


PRODUCT = "A: f32[M, K], B: f32[K, N]) -> C: f32[M, N]"
ROW = "A: f32[M]) -> C: f32[M]"

MISTAKES = {
    "a product by @": (
        compute(PRODUCT, "C = A @ B"),
        "a product of matrices is `C[i, j] = sum[k] A[i, k] * B[k, j]`",
        compute(PRODUCT, "C[i, j] = sum[k] A[i, k] * B[k, j]"),
    ),
    "a slice": (
        compute(ROW, "C[:] = A[:] * 2.0"),
        "a tensor is read element by element: `A[i, k]`",
        compute(ROW, "C[i] = A[i] * 2.0"),
    ),
    "a subscript from the end": (
        compute(ROW, "C[i] = A[-1]"),
        "subscripts are counted from 0: the last one is `M - 1`",
        compute(ROW, "C[i] = A[M - 1]"),
    ),
    "a size by the shape": (
        compute(ROW, "C[i] = A[i] / A.shape[0]"),
        "a size is the name of its dimension, `M` of `A: f32[M]`",
        compute(ROW, "C[i] = A[i] / f32(M)"),
    ),
    "an output without a name": (
        compute("A: f32[M]) -> f32[M]", "C[i] = A[i]"),
        "a tensor has a name and a type: `C: f32[M]`",
        compute(ROW, "C[i] = A[i]"),
    ),
    "an attribute among tensors": (
        compute("A: f32[M], pad: int) -> C: f32[M]", "C[i] = A[i] * pad"),
        "attributes stand behind a `;`: `f(A: f32[N]; pad: int)`",
        compute("A: f32[M]; pad: int) -> C: f32[M]", "C[i] = A[i] * f32(pad)"),
    ),
    "a comparison for an assignment": (
        compute(ROW, "C[i] == A[i]"),
        "`=` says what an element is; `==` compares",
        compute(ROW, "C[i] = A[i]"),
    ),
    "an output of one element": (
        compute("A: f32[M]) -> C: f32[1]", "C[0] = sum[i] A[i]"),
        "an index is a name, and the line holds for all its values; a single value is `-> C: f32`, `C = …`",
        compute("A: f32[M]) -> C: f32", "C = sum[i] A[i]"),
    ),
    "an output at a shifted place": (
        compute("A: f32[M]) -> C: f32[M]", "C[i + 1] = A[i]"),
        "an index is a name, and the line holds for all its values; shift what is read: `X[i - 1]`",
        compute("A: f32[M]) -> C: f32[M]", "C[i] = A[i - 1] if i >= 1 else 0.0"),
    ),
    "an output at every second place": (
        compute("A: f32[M]) -> C: f32[2 * M]", "C[i * 2] = A[i]"),
        "an index is a name, and the line holds for all its values: `X[i / 2] if i % 2 == 0 else 0.0`",
        compute("A: f32[M]) -> C: f32[2 * M]", "C[i] = A[i / 2] if i % 2 == 0 else 0.0"),
    ),
    "an output of columns": (
        compute("A: f32[M], B: f32[M]) -> C: f32[M, 2]", "C[i, 0] = A[i]"),
        "an index is a name, and the line holds for all its values: `C[i, j] = A[i] if j == 0 else B[i]`",
        compute("A: f32[M], B: f32[M]) -> C: f32[M, 2]", "C[i, j] = A[i] if j == 0 else B[i]"),
    ),
    "an output at a place that data name": (
        compute("A: i32[M]) -> C: f32[N]", "C[A[i]] += 1.0"),
        "data choose terms, not places: a histogram is `H[v] = sum[n] (1.0 if X[n] == i32(v) else 0.0)`",
        compute("A: i32[M]) -> C: f32[N]", "C[v] = sum[n] (1.0 if A[n] == i32(v) else 0.0)"),
    ),
    "a use of everything": (
        "use std.cpu.*\n",
        "name what is used, `use std.cpu.{a, b}`, or use the whole file, `use std.cpu`",
        "use std.cpu\n",
    ),
    "a use by a path": ('use "std/cpu"\n', "a path has dots and no quotes: `use std.cpu`", "use std.cpu\n"),
    ".length of a list": (
        schedule("split(i, [_, C.loops.length])"),
        "of a list it is `len(…)`, of a loop `l.extent`, of a buffer `x.shape`",
        schedule("split(i, [_, len(C.loops)])"),
    ),
    "get_loops": (
        schedule("let [a, b, c] = get_loops(C)\n    parallel(a)"),
        "the loops of a block are `C.loops`",
        schedule("let [a, b, c] = C.loops\n    parallel(a)"),
    ),
    "a factor of None": (
        schedule("split(i, [None, 32])"),
        "a factor that follows from the others is `_`: `split(i, [_, 32])`",
        schedule("split(i, [_, 32])"),
    ),
    "True": (
        schedule("split(i, [_, 32], partial=True)"),
        "write `true`",
        schedule("split(i, [_, 32], partial=true)"),
    ),
    "one factor": (
        schedule("split(i, 32)"),
        "write a factor for each loop, `_` for the one that follows from the others: `[_, 32]`",
        schedule("split(i, [_, 32])"),
    ),
    "names without brackets": (
        schedule("let a, b = split(i, [_, 32])"),
        "several names stand in brackets: `let [a, b] = …`",
        schedule("let [a, b] = split(i, [_, 32])"),
    ),
    "the lanes of vectorize": (
        schedule("vectorize(j, 8)"),
        "split it first: `let [outer, inner] = split(j, [_, 8])`, `vectorize(inner)`",
        schedule("let [outer, inner] = split(j, [_, 8])\n    vectorize(inner)"),
    ),
    "compute_root": (
        schedule("C.compute_root()"),
        "a stage stays in a nest of its own unless `compute_at` or `compute_inline` moves it",
        schedule(""),
    ),
    "can_inline": (
        schedule("let x = C.can_inline"),
        "it is `can_compute_inline` now, as the step is",
        schedule("let x = C.can_compute_inline"),
    ),
    "can_reverse_inline": (
        schedule("let x = C.can_reverse_inline"),
        "it is `can_reverse_compute_inline` now, as the step is",
        schedule("let x = C.can_reverse_compute_inline"),
    ),
    "can_roll": (
        schedule("let x = C.can_roll(i)"),
        "it is `can_rolling_buffer` now, as the step is",
        schedule("let x = C.can_rolling_buffer(i)"),
    ),
    "can_leave": (
        schedule("let x = k.can_leave(i)"),
        "it is `can_reorder` now, as the step is",
        schedule("let x = k.can_reorder(i)"),
    ),
    "can_compute_once_at": (
        schedule("let x = C.can_compute_once_at(i)"),
        "it is `is_computed_once_at` now: it asks for more than that `compute_at` is accepted",
        schedule("let x = C.is_computed_once_at(i)"),
    ),
    "find of Exo": (
        schedule('parallel(root.find("for i in _"))'),
        "`find_loop(pattern)` and `find_block(pattern)` give the first one, `find_loops` and `find_blocks` all",
        schedule('parallel(root.find_loop("for i in _"))'),
    ),
    "a pattern of Exo": (
        schedule('parallel(root.find_loop("for i in _: _"))'),
        "a loop is `for i in _ { … }`, a block `block C`, or what it stores: `C[_, _] = _`, `C += _`, `C = … A …`",
        schedule('parallel(root.find_loop("for i in _ { … }"))'),
    ),
    "a query of a block that is one of a loop": (
        schedule("let x = C.can_write_at(i)"),
        "a loop has it: `….can_write_at(block, scope=…)`",
        schedule("let x = i.can_write_at(C)"),
    ),
    "a query of a loop that is one of a block": (
        schedule("let x = i.can_compute_inline"),
        "a block has it: `….can_compute_inline`",
        schedule("let x = C.can_compute_inline"),
    ),
    "program_id": (
        schedule("program_id(0)"),
        'an iteration of a loop is one block or thread of a GPU by `bind(loop, "block.x")`, `bind(loop, "thread.x")`',
        schedule('bind(i, "block.x")'),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_has_a_repair_that_works(mistake: str) -> None:
    wrong, repair, right = MISTAKES[mistake]
    with pytest.raises(TschedError) as e:
        loads(wrong)
    assert repair in [note.words for note in e.value.diagnostics[0].notes]
    loads(right)


def test_what_is_unknown_is_reported_once() -> None:
    with pytest.raises(TschedError) as e:
        loads(schedule("let [a, b] = s[C].split(i, [_, 32])"))
    assert [d.code for d in e.value.diagnostics] == ["E0220", "E0226"]
