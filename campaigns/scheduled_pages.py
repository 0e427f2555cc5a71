"""Programs and schedules that pages of tests hold: the cases of primitives, and schedules after other projects' tests.

A section `## title` has a fenced `tsched` program, loops that are written out or a compute with a `task it` that binds its
sizes, or schedules that of the section before it; a fenced `call` with steps; and a fenced `error` if a step is refused.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api import TaskFile
from tensorc_dsl.interp.evaluate import Env
from tensorc_dsl.interp.expand import Expansion
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import For, Program, walk
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.tuning.machine.host import host_target

TESTS = Path(__file__).resolve().parent.parent / "tests"
FOLDERS = (TESTS / "primitives", TESTS / "foreign" / "schedules")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TASK = re.compile(r"^task it = (\w+)\(.*\)$", re.MULTILINE)
_STEP = re.compile(r"\b(\w+)\(")


@dataclass(frozen=True, slots=True)
class Start:
    """A section whose steps are accepted."""

    name: str
    text: str
    steps: str

    @property
    def is_compute(self) -> bool:
        return is_compute(self.text)


def is_compute(text: str) -> bool:
    """Whether the text holds a compute with its task, and not loops."""
    return bool(_TASK.search(text))


@cache
def starts() -> dict[str, list[Start]]:
    """The accepted sections by the primitives in their steps."""
    found: dict[str, list[Start]] = {name: [] for name in PRIMITIVES}
    for start in (s for folder in FOLDERS for page in sorted(folder.glob("*.md")) for s in _accepted(page)):
        for name in dict.fromkeys(_STEP.findall(start.steps)):
            if name in found:
                found[name].append(start)
    return found


def random_start(rng: random.Random, aims: tuple[str, ...] = ()) -> Start:
    """A section that takes a step of one of the primitives `aims`, or of any; each of them is as likely."""
    known = starts()
    return rng.choice(known[rng.choice([n for n in aims or sorted(known) if known[n]])])


def _accepted(page: Path) -> Iterator[Start]:
    text = ""
    for section in re.split(r"^## ", page.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        fences = FENCE.findall(section)
        if fences and fences[0][0] == "tsched":
            text = fences[0][1]
        calls = [body for kind, body in fences if kind == "call"]
        if calls and all(kind != "error" for kind, _ in fences):
            yield Start(f"{page.stem}: {section.splitlines()[0].strip()}", text, calls[0])


def scheduled(text: str, steps: str) -> tuple[Program, Program]:
    """The program of the text, before and after the steps. Raises TschedError or ScheduleRefusal as the first step that is
    refused does, or what is wrong with the text.
    """
    found = _TASK.search(text)
    if found is None:
        before = parse_program(Source("loops.tsched", text))
        return before, _after(before, steps)
    body = "".join(f"    {line}\n" for line in steps.splitlines())
    whole = f"{_TASK.sub(found[0] + ' with it', text)}\nschedule it for {found[1]} {{\n{body}}}\n"
    checked = load_source(Source("foreign.tsched", whole))
    if wrong := [d for d in checked.diagnostics if d.code.startswith("E")]:
        raise TschedError(*wrong)
    task = TaskFile(checked, host_target(2))["it"]
    return task.program, task.sample(0).program


def _after(before: Program, steps: str) -> Program:
    """Loops that are written out, after the steps. Loops, blocks and buffers of each program on the way have their names; a
    block goes before the buffer that it is named after.
    """
    (item,) = parse(Source("steps.tsched", f"schedule it for it {{\n{steps}}}\n")).items
    assert isinstance(item, tree.ScheduleDef)
    expansion = Expansion(before, host_target(2), {}, lambda _: None)
    env: Env = expansion.given()
    for step in item.body:
        program = expansion.program
        found: Env = {b.name: BufferRef(b.name) for b in (*program.params, *program.buffers)}
        for _, s in walk(program.body):
            found[s.var if isinstance(s, For) else s.name] = LoopRef(s.var) if isinstance(s, For) else BlockRef(s.name)
        env = {**found, **env}
        expansion.run((step,), env)
    return expansion.program
