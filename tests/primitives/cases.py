"""Reads, runs and writes the cases of primitives, which are Markdown pages.

A page holds sections `## title`: prose, a fenced `tsched` program, a fenced `call` with one step a line, and what comes
out, as a fenced `tsched` program or a fenced `error`; nothing of a case whose outcome is not written yet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tensorc_dsl.base.diagnostic import render
from tensorc_dsl.base.source import Source
from tensorc_dsl.interp.arguments import bind_primitive
from tensorc_dsl.interp.evaluate import Budget, Env, ProgramRef, Value, evaluate
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import For, Program, walk
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef, ScheduleRefusal, refusal_diagnostic
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse

FOLDER = Path(__file__).parent
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Case:
    """One section of a page."""

    page: Path
    title: str
    before: str
    call: str
    kind: str
    expected: str

    @property
    def name(self) -> str:
        return f"{self.page.stem}: {self.title}"


def read_page(page: Path) -> list[Case]:
    """The cases of a page, in order; a section without a fenced block is prose."""
    out: list[Case] = []
    for section in re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        fences = _FENCE.findall(section)
        if not fences:
            continue
        title = section.split("\n", 1)[0].strip()
        if [kind for kind, _ in fences[:2]] != ["tsched", "call"] or len(fences) > 3:
            raise ValueError(f"{page.name}, {title}: a case is a program, a call and what comes out")
        kind, expected = fences[2] if len(fences) == 3 else ("", "")
        out.append(Case(page, title, fences[0][1], fences[1][1], kind, expected))
    return out


@cache
def all_cases() -> tuple[Case, ...]:
    return tuple(case for page in sorted(FOLDER.glob("*.md")) for case in read_page(page))


class _Machine:
    """Calls of primitives on a program, by their names in the language."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.budget = Budget()

    def call(self, call: tree.CallExpr, env: Env) -> Value:
        assert isinstance(call.function, tree.Name)
        args = [evaluate(a, env, self) for a in call.args]
        kwargs: dict[str, Value] = {k: evaluate(v, env, self) for k, v in call.kwargs}
        bound = bind_primitive(call.function.id, args, kwargs, self.program, call)
        self.program = apply(self.program, call.function.id, *bound.args, **bound.kwargs).program
        return None

    def attribute(self, base: Value, at: tree.Attribute) -> Value:
        raise AssertionError("a case names its loops and blocks")

    def named(self, e: tree.Name) -> Value:
        raise AssertionError("a case passes no modules")

    def for_list(self, loop: tree.ForList, env: Env) -> Value:
        raise AssertionError("a case is a list of steps")

    def env(self) -> Env:
        """Loops, blocks and buffers by name; a block goes before the buffer that it is named after."""
        names: Env = {b.name: BufferRef(b.name) for b in (*self.program.params, *self.program.buffers)}
        for _, s in walk(self.program.body):
            names[s.var if isinstance(s, For) else s.name] = LoopRef(s.var) if isinstance(s, For) else BlockRef(s.name)
        return {**names, "root": ProgramRef()}


@cache
def before_program(case: Case) -> Program:
    return parse_program(Source(case.name, case.before))


@cache
def run(case: Case) -> Program:
    """The program after the steps of the case; raises what the last step raises."""
    (item,) = parse(Source(case.name, f"schedule case for it {{\n{case.call}}}\n")).items
    assert isinstance(item, tree.ScheduleDef)
    machine = _Machine(before_program(case))
    stale: Env = {}
    for stmt in item.body:
        assert isinstance(stmt, tree.ExprStmt)
        stale |= machine.env()  # a name that a step removed still stands for what it was
        evaluate(stmt.value, stale, machine)
    return machine.program


def outcome(case: Case) -> tuple[str, str]:
    """The kind of the last fenced block and its text, as they come out now."""
    try:
        return "tsched", format_program(run(case))
    except ScheduleRefusal as refusal:
        return "error", render(refusal_diagnostic(refusal)) + "\n"


def write_back(case: Case, kind: str, text: str) -> None:
    """Put what came out into the page of the case."""
    content = case.page.read_text(encoding="utf-8")
    start = content.index(f"## {case.title}\n")
    end = content.find("\n## ", start)
    end = len(content) if end < 0 else end + 1
    fences = list(_FENCE.finditer(content, start, end))
    block = f"```{kind}\n{text}```"
    if len(fences) == 3:
        new = content[: fences[2].start()] + block + content[fences[2].end() :]
    else:
        new = content[: fences[1].end()] + f"\n\n{block}" + content[fences[1].end() :]
    case.page.write_text(new, encoding="utf-8")


_QUOTED = re.compile(r"(?P<before>[^`]*)`(?P<step>(?P<name>[a-z_]+)?[^`]*)`")


def repairs(case: Case) -> list[tuple[str, ...]]:
    """The steps that the repair of a refused case names with all of their arguments; those joined by "then" together."""
    found: list[tuple[str, ...]] = []
    for part in _QUOTED.finditer(case.expected.partition(" = help: ")[2]):
        step = part["step"]
        if part["name"] not in PRIMITIVES or not step.endswith(")") or "…" in step:
            continue
        if part["before"].endswith(("before ", "after ", "of ")):  # a step that was made
            continue
        if part["before"] == ", then " and found:
            found[-1] += (step,)
        else:
            found.append((step,))
    return found


def with_repair(case: Case, steps: tuple[str, ...], *, again: bool = False) -> Case:
    """The case with `steps` in place of the refused one, and with the refused one behind them if it is tried `again`."""
    *before, refused = case.call.splitlines()
    return replace(case, call="".join(f"{line}\n" for line in (*before, *steps, *((refused,) if again else ()))))
