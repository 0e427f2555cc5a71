"""The nests that run once, before the first call."""

from __future__ import annotations

from tensorc_dsl.proof.sets.constants import Preparation, preparation
from tests.codegen.native import program

LOOPS = "spatial vi in 8 = {0}"


def nest(target: str, value: str, var: str, block: str | None = None) -> str:
    """`target[i] = value` for i in 8, `i` spelled `vi`."""
    return f"for {var} in 8 {{ block {block or target} {{ spatial vi in 8 = {var}\n {target}[vi] = {value} }} }}\n"


def found(*nests: str, params: str = "X: f32[8], W: const f32[8], C: f32[8]", buffers: str = "P Q") -> Preparation:
    declared = "".join(f"buffer {b}: f32[8]\n" for b in buffers.split())
    return preparation(program(f"program p({params}) {{ {declared}{''.join(nests)} }}"))


def names(p: Preparation) -> tuple[list[int], list[str], list[str]]:
    return sorted(p.nests), [b.name for b in p.prepared], sorted(p.kept)


def test_what_follows_from_constants_alone_through_intermediates() -> None:
    p = found(nest("P", "W[vi] + 1.0", "a"), nest("Q", "P[vi] * P[7 - vi]", "b"), nest("C", "X[vi] + Q[vi]", "c"))
    assert names(p) == ([0, 1], ["Q"], [])
    assert p.fixed == {"P", "Q"}


def test_without_constant_inputs_there_is_none() -> None:
    p = found(nest("P", "1.0", "a"), nest("C", "X[vi] + P[vi]", "b"), params="X: f32[8], C: f32[8]", buffers="P")
    assert names(p) == ([], [], [])


def test_an_intermediate_that_both_read_is_prepared() -> None:
    p = found(
        nest("P", "W[vi] + 1.0", "a"),
        nest("Q", "P[vi] * W[vi]", "b"),
        nest("C", "X[vi] + Q[vi] + P[vi] * W[vi]", "c"),
    )
    assert names(p) == ([0, 1], ["P", "Q"], ["W"])


def test_outputs_are_written_in_each_call() -> None:
    p = found(nest("P", "W[vi] + 1.0", "a"), nest("C", "P[vi]", "b"), nest("D", "X[vi]", "c"),
              params="X: f32[8], W: const f32[8], C: f32[8], D: f32[8]", buffers="P")  # fmt: skip
    assert names(p) == ([0], ["P"], [])


def test_what_reads_an_output_is_computed_in_each_call() -> None:
    p = found(nest("C", "W[vi]", "a"), nest("P", "C[vi] + 1.0", "b"), nest("D", "P[vi] + X[vi]", "c"),
              params="X: f32[8], W: const f32[8], C: f32[8], D: f32[8]", buffers="P")  # fmt: skip
    assert names(p) == ([], [], ["W"])


def test_a_buffer_that_calls_write_too_is_theirs() -> None:
    p = found(nest("P", "W[vi]", "a"), nest("P", "P[vi] + X[vi]", "b", "P2"), nest("C", "P[vi]", "c"), buffers="P")
    assert names(p) == ([], [], ["W"])


def test_a_buffer_is_not_written_before_it_was_read() -> None:
    # P is W, then W + 1: moved together, C would see the second.
    p = found(
        nest("P", "W[vi]", "a"),
        nest("C", "P[vi] + X[vi]", "b"),
        nest("P", "W[vi] + 1.0", "c", "P2"),
        nest("D", "P[vi] + X[vi]", "d"),
        params="X: f32[8], W: const f32[8], C: f32[8], D: f32[8]",
        buffers="P",
    )
    assert names(p) == ([], [], ["W"])


def test_what_is_below_other_loops_stays_there() -> None:
    p = found(f"for t in 4 {{ {nest('P', 'W[vi] + 1.0', 'a')} {nest('C', 'X[vi] + P[vi]', 'b')} }}", buffers="P")
    assert names(p) == ([], [], ["W"])


def test_an_open_dimension_is_told_by_constants() -> None:
    text = """
program p(X: f32[M, 4], W: const f32[N, 4], C: f32[M, N]) {{
    buffer P: f32[{rows}, 4]
    for a in {rows}, b in 4 {{
        block P {{
            spatial va in {rows} = a
            spatial vb in 4 = b
            P[va, vb] = W[0, vb] + 1.0
        }}
    }}
    for i in M, j in N {{
        block C {{
            spatial vi in M = i
            spatial vj in N = j
            C[vi, vj] = X[vi, 0] + P[{row}, 0]
        }}
    }}
}}
"""
    assert names(preparation(program(text.format(rows="N", row="vj")))) == ([0], ["P"], [])
    assert names(preparation(program(text.format(rows="M", row="vi")))) == ([], [], ["W"])
