"""Large kernels are written as several functions, so that LLVM's time grows with their code and not with its square."""

from __future__ import annotations

import pytest

from tensorc_dsl.backend.llvm.codegen import compile as compiler
from tensorc_dsl.backend.llvm.codegen import statements
from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api import Task, TaskFile
from tensorc_dsl.ir.program import LoopKind
from tensorc_dsl.lower.flat import Loop, inside
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.search.expansion import stream
from tests.codegen.native import compiled, program, require_right

TEXT = """
use std.cpu.{{default}}
use std.image.{{{name}}}
task t = {name}(H={h}, W={w}) with default
"""


def drawn(name: str, h: int, w: int, seed: int) -> tuple[Task, Trace]:
    task = TaskFile(load_source(Source("large.tsched", TEXT.format(name=name, h=h, w=w))), host_target(2))["t"]
    return task, task.space.sample(stream(seed, task.name, "test"))


@pytest.mark.corpus
@pytest.mark.parametrize(("name", "seed"), [("harris", 1), ("harris", 2), ("pyramid", 1), ("median", 3)])
def test_a_kernel_of_several_functions_is_right(monkeypatch: pytest.MonkeyPatch, name: str, seed: int) -> None:
    task, trace = drawn(name, 53, 91, seed)
    before = compiled(trace.program).llvm_ir.count("\ndefine ")
    monkeypatch.setattr(compiler, "LARGE", 0)
    monkeypatch.setattr(statements, "APART", 1)
    assert compiled(trace.program).llvm_ir.count("\ndefine ") > before
    require_right(task, [trace])


def test_functions_of_the_same_text_are_there_once() -> None:
    module = Module()

    def named(name: str, value: int) -> str:
        f = Function(module)
        f.line(f"store i64 {value}, ptr %a0")
        return f.define_once(name, "(ptr %a0)")

    assert [named("a", 1), named("b", 2), named("c", 1)] == ["a", "b", "a"]
    assert len(module.functions) == 2


def test_rows_around_long_vectors_are_not_unrolled() -> None:
    text = """
program f(X: f32[2, {n}], Y: f32[2, {n}]) @("unroll.max_step", 16) {{
    for i in 2 {{
        vectorized for j in {n} {{
            block Y {{ spatial vi in 2 = i; spatial vj in {n} = j; Y[vi, vj] = X[vi, vj] * 2.0 }}
        }}
    }}
}}
"""

    def kinds(n: int) -> list[LoopKind]:
        body = lower_cpu(program(text.format(n=n))).body
        return [s.kind for s in inside(body) if isinstance(s, Loop)]

    assert kinds(128) == [LoopKind.UNROLLED, LoopKind.VECTORIZED]
    assert kinds(129) == [LoopKind.SERIAL, LoopKind.VECTORIZED]
