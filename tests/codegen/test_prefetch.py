"""`prefetch` on CPUs: the lines that a later iteration reads are fetched, if it is known which, and they are few."""

from __future__ import annotations

import numpy as np

from tensorc_dsl.backend.llvm.codegen.statements import lines_ahead
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.lower.flat import Loop, inside
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
