"""Properties of the machine code that its speed needs, and of compiled kernels as values."""

from __future__ import annotations

import pickle
import re

import pytest

from tensorc_dsl.backend.llvm.codegen.compile import compile_kernel
from tensorc_dsl.backend.llvm.codegen.machine import CompileError, Machine
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import format_kernel
from tests.codegen.native import program

WIDE = Target(cpu="znver4", features="", vector_bits=512, cores=2)
NARROW = Target(cpu="haswell", features="", vector_bits=256, cores=2)


def tile(rows: int, columns: int, *, local: bool) -> Program:
    """A register tile of a matrix product, its sum kept in C or in a local buffer that is copied by plain loops."""
    target = "L" if local else "C"
    back = f"""
        for a in {rows}, b in {columns} {{
            block write {{
                spatial vi in {rows} = a
                spatial vj in {columns} = b
                C[vi, vj] = L[vi, vj]
            }}
        }}
"""
    return program(f"""
program tile(A: f32[{rows}, 64], B: f32[64, {columns}], C: f32[{rows}, {columns}]) {{
    {f'buffer L: f32[{rows}, {columns}] in "local"' if local else ""}
    for k in 64 {{
        unrolled for i in {rows} {{
            vectorized for j in {columns} {{
                block product {{
                    spatial vi in {rows} = i
                    spatial vj in {columns} = j
                    reduce vk in 64 = k
                    init {{ {target}[vi, vj] = 0.0 }}
                    {target}[vi, vj] = {target}[vi, vj] + A[vi, vk] * B[vk, vj]
                }}
            }}
        }}
    }}
    {back if local else ""}
}}
""")


def loop_of(assembly: str, word: str) -> list[str]:
    """The instructions of the loop in which `word` stands most often."""
    best: list[str] = []
    lines = assembly.splitlines()
    labels = [re.match(r"(\.\w+):", line) for line in lines]
    places = {label[1]: k for k, label in enumerate(labels) if label}
    for k, line in enumerate(lines):
        jump = re.match(r"\s+j\w+\s+(\.\w+)$", line)
        if jump and places.get(jump[1], k) < k:
            body = lines[places[jump[1]] : k]
            if sum(word in x for x in body) > sum(word in x for x in best):
                best = body
    return best


@pytest.mark.corpus
@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize(("target", "rows", "columns", "register"), [
    (WIDE, 8, 32, "zmm"), (WIDE, 12, 32, "zmm"), (WIDE, 14, 32, "zmm"), (WIDE, 6, 64, "zmm"),
    (NARROW, 6, 16, "ymm"), (NARROW, 4, 24, "ymm"),
])  # fmt: skip
def test_the_sums_of_a_register_tile_stay_in_registers(
    target: Target, rows: int, columns: int, register: str, local: bool
) -> None:
    text = compile_kernel(lower_cpu(tile(rows, columns, local=local)), target, 1).view("asm")
    loop = loop_of(text, "vfmadd")
    lanes = target.vector_bits // 32
    assert sum("vfmadd" in x and register in x for x in loop) == rows * columns // lanes
    assert not [x for x in loop if "rsp" in x]
    stores = [x for x in loop if re.search(rf"vmov\w+\s+%{register}\d+, .*\(", x)]
    assert not stores


def test_a_short_serial_loop_is_unrolled_on_request() -> None:
    text = """
program f(X: f32[8, 4], C: f32[8])%s {
    for i in 8 {
        for k in 4 {
            block C {
                spatial v in 8 = i
                reduce vk in 4 = k
                init { C[v] = 0.0 }
                C[v] = C[v] + X[v, vk]
            }
        }
    }
}
"""
    kept = format_kernel(lower_cpu(program(text % "")))
    short = format_kernel(lower_cpu(program(text % ' @("unroll.max_step", 3)')))
    unrolled = format_kernel(lower_cpu(program(text % ' @("unroll.max_step", 4)')))
    assert kept == short
    assert "unrolled for k" in unrolled
    assert "unrolled" not in kept


def test_a_compiled_kernel_can_be_sent_to_another_process() -> None:
    c = compile_kernel(lower_cpu(tile(4, 16, local=True)), WIDE, 2)
    again = pickle.loads(pickle.dumps(c))
    assert again == c
    assert [p.name for p in again.params if p.output] == ["C"]


def test_code_that_llvm_refuses_is_a_compile_error() -> None:
    with pytest.raises(CompileError, match="expected"):
        Machine(WIDE).object_code("define void @f( {")


def test_accesses_of_a_loop_are_not_compared_with_each_other() -> None:
    # The load of %a is what the iteration before stored, unless the two arrays overlap. Where LLVM looks for such loads, it
    # makes a second loop, and takes seconds for a loop of hundreds of accesses.
    text = """
define void @f(ptr %a, ptr %b, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %next = add nuw nsw i64 %i, 1
  %from = getelementptr inbounds float, ptr %a, i64 %i
  %x = load float, ptr %from
  %other = getelementptr inbounds float, ptr %b, i64 %i
  %y = load float, ptr %other
  %sum = fadd float %x, %y
  %into = getelementptr inbounds float, ptr %a, i64 %next
  store float %sum, ptr %into
  store float %sum, ptr %other
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""
    made = str(Machine(NARROW).module(text))
    assert made.count("load float") == 2


def test_threads_must_be_positive() -> None:
    with pytest.raises(ValueError, match="at least one thread"):
        compile_kernel(lower_cpu(tile(4, 16, local=False)), WIDE, 0)
