"""`prefetch` on CPUs: the lines that a later iteration reads are fetched, if it is known which, and they are few."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl import loads
from tensorc_dsl.backend.llvm.lower.passes import fetch_ahead, lines_ahead, lower_cpu
from tensorc_dsl.ir.expr import constant, index, substitute
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.lower.flat import Loop, inside
from tensorc_dsl.proof.sets.simplify import simplify
from tests.codegen import native

SUM = """
program total(A: f32[{rows}, {columns}], S: f32[1]) {{
    for i in {rows} @("prefetch.A", {distance}) {{
        for j in {columns} {{
            block S {{
                spatial v in 1 = 0
                reduce vi in {rows} = i
                reduce vj in {columns} = j
                init {{ S[v] = 0.0 }}
                S[v] = S[v] + A[vi, vj]
            }}
        }}
    }}
}}
"""


def lines(rows: int, columns: int, distance: int) -> list[str]:
    p = native.program(SUM.format(rows=rows, columns=columns, distance=distance))
    (loop,) = (s for s in inside(lower_cpu(p).body) if isinstance(s, Loop) and s.ahead)
    return [format_expr(e) for name, n in loop.ahead for e in lines_ahead(loop, name, n, 4)]


def test_the_lines_of_a_later_iteration() -> None:
    assert lines(9, 40, 3) == ["i * 40 + 120", "i * 40 + 136", "i * 40 + 152"]


def test_more_lines_than_a_core_waits_for_are_not_fetched() -> None:
    assert len(lines(9, 16 * 16, 1)) == 16
    assert lines(9, 16 * 17, 1) == []


def test_what_lies_behind_the_buffer_is_no_fault() -> None:
    """The arrays end at pages that cannot be read."""
    p = native.program(SUM.format(rows=70, columns=40, distance=64))
    assert "call void @llvm.prefetch" in native.compiled(p).llvm_ir
    a = np.arange(2800, dtype=np.float32).reshape(70, 40) % 7
    np.testing.assert_array_equal(native.run(p, {"A": a})["S"], [a.sum()])


PANELS = """
program panels(A: f32[{rows}, {depth}], B: f32[{count}, {depth}, {width}], C: f32[{count}, {rows}, {width}]) {{
    for p in {count} @("prefetch.B", 1) {{
        for i in {rows}, k in {depth} {{
            vectorized for j in {width} {{
                block C {{
                    spatial vp in {count} = p
                    spatial vi in {rows} = i
                    reduce vk in {depth} = k
                    spatial vj in {width} = j
                    init {{ C[vp, vi, vj] = 0.0 }}
                    C[vp, vi, vj] = C[vp, vi, vj] + A[vi, vk] * B[vp, vk, vj]
                }}
            }}
        }}
    }}
}}
"""


@pytest.mark.parametrize(("rows", "depth", "width"), [(3, 40, 64), (2, 33, 17), (5, 70, 8), (1, 40, 64), (4, 300, 16)])
def test_the_lines_of_the_next_panel_are_fetched_by_the_tiles_of_this_one(rows: int, depth: int, width: int) -> None:
    p = native.program(PANELS.format(count=3, rows=rows, depth=depth, width=width))
    (loop,) = (s for s in inside(lower_cpu(p).body) if isinstance(s, Loop) and s.ahead)
    assert lines_ahead(loop, "B", 1, 4) == ()
    (found,) = fetch_ahead(loop, "B", 1, 4)
    assert found.loop.var == "k" and found.cache == 2
    numbers = [{"p": index(1), "i": index(i), "k": index(k)} for i in range(rows) for k in range(depth)]
    each = [(constant(simplify(substitute(e, at), {})) or 0) // 16 for at in numbers for e in found.places]
    first, last = 2 * depth * width // 16, (3 * depth * width - 1) // 16
    assert set(range(first, last)) <= set(each) and min(each) == first
    # Steps are whole elements, so that the last of them may be behind the panel, by less than its length.
    assert max(each) < 2 * last - first + len(found.places)
    a, b = (np.arange(n, dtype=np.float32) % 5 for n in (rows * depth, 3 * depth * width))
    a, b = a.reshape(rows, depth), b.reshape(3, depth, width)
    np.testing.assert_array_equal(native.run(p, {"A": a, "B": b})["C"], np.matmul(a, b))


def test_a_panel_that_tiles_read_in_too_few_steps_is_not_fetched() -> None:
    p = native.program(PANELS.format(count=3, rows=1, depth=2, width=16 * 40))
    (loop,) = (s for s in inside(lower_cpu(p).body) if isinstance(s, Loop) and s.ahead)
    assert fetch_ahead(loop, "B", 1, 4) == ()


OPEN = """
compute product(A: f32[M, K], B: f32[P, K, 64]) -> C: f32[P, M, 64] { C[p, i, j] = sum[k] A[i, k] * B[p, k, j] }
schedule tiled for product {
    let [p, i, j, k] = C.loops
    let [i0, i1] = split(i, [_, 4], partial=true)
    reorder(p, i0, k, i1, j)
    let write = write_at(i0, C)
    let zero = decompose_reduction(C, k)
    for b in [C, zero, write] {
        unroll(b.loops[-2])
        vectorize(b.loops[-1])
    }
    prefetch(p, B)
}
task product = product(M=1..9, K=96, P=3) with tiled
"""


def test_each_number_of_rows_fetches_the_next_panel() -> None:
    task = loads(OPEN, threads=1)["product"]
    (loop,) = (s for s in inside(lower_cpu(task.sample(0).program).body) if isinstance(s, Loop) and s.ahead)
    found = fetch_ahead(loop, "B", 1, 4)
    rows = [constant(x.end) for f in found for x in inside(f.loop.body) if isinstance(x, Loop) and x.var == "i_1"]
    assert rows == [1, 2, 3] and len({f.places for f in found}) == 1
    kernel = task.replay(task.sample(0))
    a, b = (np.arange(n, dtype=np.float32) % 5 for n in (9 * 96, 3 * 96 * 64))
    a, b = a.reshape(9, 96), b.reshape(3, 96, 64)
    for m in range(1, 10):
        np.testing.assert_array_equal(kernel(a[:m], b), np.matmul(a[:m], b))
