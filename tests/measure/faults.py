"""Kernels with a fault each, written in LLVM IR to the kernels' calling convention. The task: C[i] = A[i] + 1."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import Binary, Const
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.measure.child import Built
from tests.programs import buffer, load, stage, v

SIZE = 37

_KERNEL = """
@calls = internal global i64 0
@text = internal constant [6 x i8] c"noise\\0A"
declare void @abort()
declare void @_exit(i32)
declare i64 @write(i32, ptr, i64)
{declare}
define i64 @kernel_workspace(ptr %arguments) {{
  ret i64 {workspace}
}}
define void @kernel(ptr %arguments, ptr %workspace) {{
entry:
  %a = load ptr, ptr %arguments
  %slot = getelementptr ptr, ptr %arguments, i64 1
  %c = load ptr, ptr %slot
  {before}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %from
  %y = fadd float %x, {term}
  %to = getelementptr float, ptr %c, i64 %i
  store float %y, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {count}
  br i1 %more, label %loop, label %done
done:
  {after}
  ret void
}}
"""

_SPIN = """
define internal void @spin() noinline {
  br label %again
again:
  %v = load volatile i64, ptr @calls
  br label %again
}
"""


def task(size: int = SIZE) -> Program:
    """C[i] = A[i] + 1"""
    body = stage("C", {"i": size}, Binary("+", load("A", v("i")), Const(1.0, F32)))
    return Program("add_one", (buffer("A", size), buffer("C", size)), (), (body,))


def _store(base: str, offset: int) -> str:
    return f"%p = getelementptr i8, ptr {base}, i64 {offset}\n  store i8 1, ptr %p"


def _nonsense() -> str:
    """Writes to every descriptor it may have inherited."""
    return "\n  ".join(f"%w{fd} = call i64 @write(i32 {fd}, ptr @text, i64 6)" for fd in range(1, 16))


# `volatile` where LLVM would otherwise drop what has no effect.
_FAULTS: dict[str, dict[str, str]] = {
    "none": {},
    "fills": {"workspace": str(1 << 42)},
    "null": {"before": "store volatile i8 1, ptr null"},
    "hang": {"declare": _SPIN, "before": "call void @spin()"},
    "wrong": {"term": "2.0"},
    "forgets": {"count": str(SIZE - 1)},
    "just after": {"after": _store("%c", 4 * SIZE)},
    "just before": {"after": _store("%c", -1)},
    "far after": {"after": _store("%c", 4 * SIZE + 4096)},
    "far before": {"after": _store("%c", -8192)},
    "reads after": {"after": "%p = getelementptr i8, ptr %a, i64 192\n  %z = load volatile i8, ptr %p"},
    "changes input": {"after": "store float 9.0, ptr %a"},
    "abort": {"before": "call void @abort()"},
    "exit": {"before": "call void @_exit(i32 0)"},
    "unresolved": {"declare": "declare void @no_such_function()", "before": "call void @no_such_function()"},
    "prints": {"before": "%w = call i64 @write(i32 1, ptr @text, i64 6)"},
    "nonsense": {"before": _nonsense() + "\n  call void @_exit(i32 0)"},
    "only once": {
        "before": (
            "%n = load i64, ptr @calls\n  %n1 = add i64 %n, 1\n  store i64 %n1, ptr @calls\n"
            "  %f = uitofp i64 %n to float\n  %t = fadd float %f, 1.0"
        ),
        "term": "%t",
    },
}


def kernel(fault: str) -> Built:
    """Object code of the kernel with that fault."""
    parts = {"declare": "", "before": "", "after": "", "term": "1.0", "workspace": "0", "count": str(SIZE)} | _FAULTS[
        fault
    ]
    text = _KERNEL.format(**parts)
    return Built(Code(Machine(Target()).object_code(text), "kernel", frozenset()))
