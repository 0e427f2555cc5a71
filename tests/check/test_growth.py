"""Work grows linearly with the file, whatever it repeats; a file beyond a bound is refused.

Work is counted in calls, of Python's functions and of C's: seconds say more about the machine.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from tensorc_dsl.base.diagnostic import TschedError, render
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file
from tensorc_dsl.faces.api.tasks import TaskFile
from tensorc_dsl.faces.packages import Resolver
from tensorc_dsl.ir.target import Target

RATIO = 2.5

COPY = "compute c(A: f32[M]) -> B: f32[M] { B[i] = A[i] }\n"
EMPTY = "schedule s for c { }\ntask t = c(M=8) with s\n"


def join(pattern: str, count: int, between: str = "") -> str:
    return between.join(pattern.replace("#-", str(k - 1)).replace("#", str(k)) for k in range(1, count + 1))


def scheduled(body: str) -> str:
    return f"{COPY}schedule s for c {{\n{body}\n}}\ntask t = c(M=8) with s\n"


def called(body: str, count: int) -> str:
    """A compute at the end of a chain of calls, and a schedule that names blocks of the first ones."""
    computes = join(f"compute c#(A: f32[M]) -> B: f32[M] {{ {body} }}\n", count)
    scheduled = f"schedule s for c{count} {{ let [i] = X_X.loops }}\ntask t = c{count}(M=8) with s\n"
    return f"compute c0(A: f32[M]) -> B: f32[M] {{ B[i] = A[i] + 1.0 }}\n{computes}{scheduled}"


def inlined(value: str, count: int) -> str:
    """A chain of stages, each a value of the one before, all of which are inlined."""
    lets = join(f"let x#[i] = {value}\n", count)
    steps = join("compute_inline(x#)\n", count)
    return (
        f"compute c(A: f32[M]) -> B: f32[M] {{\nlet x0[i] = A[i]\n{lets}B[i] = x{count}[i]\n}}\n"
        f"schedule s for c {{\n{steps}}}\ntask t = c(M=8) with s\n"
    )


MANY: dict[str, Callable[[int], str]] = {
    "tasks": lambda n: COPY + "schedule s for c { }\n" + join("task t# = c(M=#) with s\n", n),
    "computes": lambda n: join(COPY.replace("c(", "c#("), n),
    "computes in a line": lambda n: join(COPY.replace("c(", "c#(").strip(), n, " "),
    "schedules": lambda n: COPY + join("schedule s# for c { let [i] = B.loops }\n", n),
    "modules": lambda n: join("module m#(b: Block) { parallel(b.loops[0]) }\n", n),
    "modules in modules": lambda n: "module m0(b: Block) { }\n" + join("module m#(b: Block) { m#-(b) }\n", n),
    "spaces in spaces": lambda n: (
        COPY
        + "module m(b: Block) { parallel(b.loops[0]) }\nspace s0 for llvm { m }\n"
        + join("space s# for llvm { s#- }\n", n)
        + "task t = c(M=8)\n"
    ),
    "rules": lambda n: (
        join("module m#(b: Block) { parallel(b.loops[0]) }\n", n) + f"space s for llvm {{ {join('m#', n, ';')} }}"
    ),
    "growing spaces": lambda n: (
        "module m0(b: Block) { }\nspace s0 for llvm { m0 }\n"
        + join("module m#(b: Block) { }\nspace s# for llvm { s#-; m# }\n", n)
    ),
    "steps": lambda n: scheduled('annotate(B, "x", 1)\nunannotate(B, "x")\n' * n),
    "annotations": lambda n: scheduled(join('annotate(B, "x#", 1)\n', n)),
    "draws": lambda n: scheduled(join("let x# ~ sample_categorical([1, 2])\n", n)),
    "lets": lambda n: scheduled(join("let x# = #\n", n)),
    "eithers": lambda n: scheduled("either { let a = 1 } or { let a = 2 }\n" * n),
    "ways": lambda n: scheduled("either { let a = 1 }" + " or { let a = 2 }" * n),
    "conditions": lambda n: scheduled("if 1 == 1 { let a = 1 } else { let b = 2 }\n" * n),
    "else ifs": lambda n: scheduled("if 1 == 2 { let a = 1 }" + " else if 1 == 2 { let a = 1 }" * n),
    "a list": lambda n: scheduled(f"let x = [{join('#', n, ', ')}]"),
    "a choice": lambda n: scheduled(f'let x ~ sample_categorical([{join("#", n, ", ")}])\nannotate(B, "x", x)'),
    "comparisons": lambda n: scheduled("let x = 1" + " < 1" * n),
    "terms": lambda n: COPY.replace("= A[i]", "= A[i]" + " + A[i]" * n),
    "ands": lambda n: scheduled("let x = true" + " and true" * n),
    "brackets": lambda n: COPY.replace("= A[i]", f"= {'(' * n}A[i]{')' * n}"),
    "signs": lambda n: COPY.replace("= A[i]", f"= {'-' * n}A[i]"),
    "calls in calls": lambda n: COPY.replace("= A[i]", f"= {'exp(' * n}A[i]{')' * n}"),
    "inputs": lambda n: COPY.replace("A: f32[M]", f"A: f32[M], {join('A#: f32[M]', n, ', ')}") + EMPTY,
    "outputs": lambda n: (
        f"compute c(A: f32[M]) -> {join('B#: f32[M]', n, ', ')} {{ {join('B#[i] = A[i]', n, '; ')} }}\n{EMPTY}"
    ),
    "attributes": lambda n: COPY.replace(")", f"; {join('p#: int = 1', n, ', ')})", 1) + EMPTY,
    "dimensions by name": lambda n: COPY.replace("{", f"where X0 = M, {join('X# = X#- + 1', n, ', ')} {{", 1) + EMPTY,
    "parameters": lambda n: f"module m(b: Block, {join('p# = 1', n, ', ')}) {{ }}",
    "reducers": lambda n: join("reducer add#(a, b) = a + b identity 0\n", n),
    "targets": lambda n: join("target t# = llvm(cores=8)\n", n),
    "uses": lambda n: "use std.ops.{matmul}\n" * n,
    "blocks": lambda n: (
        "program p(A: f32[8], B: f32[8]) {\n"
        + join("for i# in 8 { block b# { spatial v# in 8 = i#; B[v#] = A[v#] } }\n", n)
        + "}\n"
    ),
    "stores": lambda n: f"program p(A: f32[8]) {{ for i in 8 {{ block b {{ spatial v in 8 = i;{' A[v] = 1.0;' * n} }} }} }}",
    "comments": lambda n: "// a comment\n" * n + COPY,
    "descriptions": lambda n: "/// a comment\n" * n + COPY,
    "a long line": lambda n: f"// {'x' * 1000 * n}\n{COPY}",
    "a long name": lambda n: COPY.replace("c(", f"{'c' * 100 * n}("),
    "a long text": lambda n: scheduled(f'annotate(B, "x", "{"x" * 10 * n}")'),
    "syntax errors": lambda n: "task t = m(\n" * n,
    "unknown names": lambda n: scheduled(join("let x# = nothing#\n", n)),
    "unknown tasks": lambda n: join("task t# = nothing#(M=1)\n", n),
    "names alike": lambda n: join(COPY.replace("c(", "number#("), n) + join("task t# = numbr#(M=1)\n", n),
    "calls in a chain": lambda n: called("let X = c#-(A); B[i] = X[i] * 2.0", n),
    "calls in pairs": lambda n: called("let X = c#-(A); let Y = c#-(X); B[i] = Y[i] * 2.0", n),
    "choices": lambda n: COPY.replace("A[i]", f"A[{join('(0 if i == # else 0)', n, ' + ')}]") + EMPTY,
    "absolute values": lambda n: COPY.replace("A[i]", f"A[{'abs(' * n}i{join(' - #)', n)} % M] if M > 0 else 0.0") + EMPTY,
    "squares of sizes": lambda n: COPY.replace("{", f"where X0 = M, {join('X# = X#- * X#-', n, ', ')} {{", 1) + EMPTY,
    "doubled by inlining": lambda n: inlined("x#-[i] * x#-[i]", n),
    "inlined": lambda n: inlined("1.5 + abs(x#-[i] * 2.0)", n),
    "a reduction written out": lambda n: (
        f"compute c(A: f32[M]) -> B: f32[M - {n}] {{ B[i] = sum[k in {n}] A[i + k] }}\n"
        f"schedule s for c {{ expand_reduction(B, {n}) }}\ntask t = c(M={n + 8}) with s\n"
    ),
}  # fmt: skip


LIMITED = {"calls in a chain": 30}
"""Where fewer than 120 are allowed, how many are compared with twice as many."""

GROWING = {"calls in pairs", "choices", "absolute values", "squares of sizes", "doubled by inlining", "inlined"}
"""What is written in few lines and means much: its work grows with what it means, up to a bound."""

BOUNDED = {"growing spaces", "unknown names", "unknown tasks", "names alike"}
"""Where work grows faster up to a bound: all names are compared with all others, and each space holds those before it."""


def findings(text: str) -> set[str]:
    source = Source("x.tsched", text)
    checked = load_file(source, Resolver("x.tsched"))
    found = list(checked.diagnostics)
    if not checked.errors:
        tasks = TaskFile(checked, Target())
        for name in tasks:
            try:
                tasks[name].check()
            except TschedError as e:
                found += e.diagnostics
    for d in found:
        render(d)
    return {d.code for d in found}


def work(text: str) -> int:
    """Calls that it takes to check and expand a file."""
    calls = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(count)
    try:
        findings(text)
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


@pytest.fixture(scope="module")
def warm() -> None:
    """What is read and made once is no work of one file."""
    findings(f"use std.ops.{{matmul}}\n{scheduled('')}reducer add(a, b) = a + b identity 0\n")
    findings("(")


@pytest.mark.corpus
@pytest.mark.parametrize("name", [name for name in MANY if name not in GROWING])
def test_twice_as_much_is_about_twice_the_work(warm: None, name: str) -> None:
    count = 300 if name in BOUNDED else LIMITED.get(name, 60)
    few, many = MANY[name](count), MANY[name](2 * count)
    findings(few)
    assert work(many + "\n") <= RATIO * work(few + "\n")


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "count", "codes"),
    [
        ("terms", 400, set[str]()),
        ("terms", 510, {"E0107"}),
        ("calls in a chain", 64, set[str]()),
        ("calls in a chain", 65, {"E0425"}),
        ("calls in a chain", 2_000, {"E0425"}),
        ("calls in pairs", 6, set[str]()),
        ("calls in pairs", 60, {"E0425"}),
        ("choices", 7, set[str]()),
        ("choices", 9, {"E0442"}),
        ("choices", 90, {"E0442"}),
        ("absolute values", 7, set[str]()),
        ("absolute values", 12, {"E0443"}),
        ("absolute values", 40, {"E0443"}),
        ("squares of sizes", 3, set[str]()),
        ("squares of sizes", 60, {"E0443"}),
        ("doubled by inlining", 10, set[str]()),
        ("doubled by inlining", 60, {"E0692"}),
        ("inlined", 150, set[str]()),
        ("inlined", 200, {"E0692"}),
        ("a reduction written out", 300, set[str]()),
        ("a reduction written out", 1_000, {"E0644"}),
        ("terms", 50_000, {"E0107"}),
        ("ands", 50_000, {"E0107"}),
        ("brackets", 50_000, {"E0107"}),
        ("signs", 50_000, {"E0107"}),
        ("calls in calls", 50_000, {"E0107"}),
        ("rules", 256, set[str]()),
        ("rules", 257, {"E0246"}),
        ("growing spaces", 2_000, {"E0246"}),
        ("outputs", 1025, {"E0425"}),
        ("steps", 5_000, {"E0532"}),
        ("modules in modules", 3_000, set[str]()),
    ],
)
def test_what_is_too_much_is_said(warm: None, name: str, count: int, codes: set[str]) -> None:
    assert findings(MANY[name](count)) - {"W0203"} == codes


def chain(stages: int) -> str:
    lets = join("let x#[i] = x#-[i] + 1.0\n", stages)
    return f"compute c(A: f32[M]) -> B: f32[M] {{\nlet x0[i] = A[i]\n{lets}B[i] = x{stages}[i]\n}}\n{EMPTY}"


def wide(dimensions: int) -> str:
    names = [join(f"{letter}#", dimensions, ", ") for letter in "Mi"]
    types = f"f32[{names[0]}]"
    sizes = join("M#=1", dimensions, ", ")
    return (
        f"compute c(A: {types}) -> B: {types} {{ B[{names[1]}] = A[{names[1]}] }}\n"
        f"schedule s for c {{ }}\ntask t = c({sizes}) with s\n"
    )


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (chain(255), set[str]()),
        (chain(256), {"E0908"}),
        (chain(1100), {"E0425"}),
        (wide(64), set[str]()),
        (wide(65), {"E0430"}),
        (wide(1000), {"E0430"}),
        (scheduled("let w = cache_write(B)\n" * 300), {"E0908", "W0201", "W0204"}),
    ],
    ids=["255 stages", "256 stages", "1100 stages", "64 loops", "65 loops", "1000 loops", "300 copies"],
)
def test_deep_programs_end_in_findings(text: str, codes: set[str]) -> None:
    assert findings(text) == codes
