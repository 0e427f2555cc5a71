"""Reads and runs schedules that were written after other projects' tests of scheduling.

A page of `schedules/` holds sections `## title`: what is scheduled, as a fenced `tsched` program, or a compute with a task
that binds its sizes; a fenced `call` with the steps, one a line; and, if a step must be refused, a fenced `error` with the
code and the message, and the repair. A section without a fenced `tsched` schedules what the one before it does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tensorc_dsl.api import TaskFile
from tensorc_dsl.api.making import failed
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.diagnostic import Diagnostic, TschedError
from tensorc_dsl.ir.program import For, Program, walk
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.machine.host import host_target
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.schedule.render import refusal_diagnostic
from tensorc_dsl.source import Source
from tests.primitives import cases

FOLDER = Path(__file__).parent / "schedules"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TASK = re.compile(r"^task it = (\w+)\(.*\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A program before and after its steps."""

    before: Program
    after: Program


@dataclass(frozen=True, slots=True)
class Case:
    """One section of a page; `refused` is empty where all steps must be accepted."""

    page: Path
    title: str
    text: str
    steps: str
    refused: str

    @property
    def name(self) -> str:
        return f"{self.page.stem}: {self.title}"

    @property
    def is_compute(self) -> bool:
        return bool(_TASK.search(self.text))

    def run(self) -> Scheduled:
        """Raises TschedError or ScheduleRefusal as the first step that is refused does, or what is wrong with the text."""
        if not self.is_compute:
            case = cases.Case(self.page, self.title, self.text, self.steps, "", "")
            return Scheduled(cases.before_program(case), cases.run(case))
        found = _TASK.search(self.text)
        assert found
        steps = "".join(f"    {line}\n" for line in self.steps.splitlines())
        text = f"{_TASK.sub(found[0] + ' with it', self.text)}\nschedule it for {found[1]} {{\n{steps}}}\n"
        checked = load_source(Source("foreign.tsched", text))
        if wrong := [d for d in checked.diagnostics if d.code.startswith("E")]:
            raise TschedError(*wrong)
        task = TaskFile(checked, host_target(2))["it"]
        return Scheduled(task.program, task.sample(0).program)

    def outcome(self) -> Scheduled | str:
        """The program where all steps are accepted, and kernels of a GPU can be made if loops are bound; otherwise the
        refusal as a page has it.
        """
        try:
            scheduled = self.run()
            if is_bound(scheduled.after):
                lower_device(scheduled.after)
            return scheduled
        except ScheduleRefusal as e:
            return told(refusal_diagnostic(e))
        except TschedError as e:
            return told(e.diagnostics[0])
        except LowerError as e:
            return told(failed("cannot be lowered", str(e)).diagnostics[0])


def is_bound(program: Program) -> bool:
    """Whether a loop counts blocks or threads."""
    return any(isinstance(s, For) and s.axis for _, s in walk(program.body))


def told(d: Diagnostic) -> str:
    """The code, the message and the repair."""
    return "\n".join([f"{d.code}: {d.message}", *(f"help: {n.text}" for n in d.notes if n.kind == "help")]) + "\n"


def read_page(page: Path) -> list[Case]:
    """The cases of a page, in order."""
    out: list[Case] = []
    text = ""
    for section in re.split(r"^## ", page.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        fences: Mapping[str, str] = dict(_FENCE.findall(section))
        if not fences:
            continue
        text = fences.get("tsched", text)
        title = section.split("\n", 1)[0].strip()
        out.append(Case(page, title, text, fences["call"], fences.get("error", "")))
    return out


def all_cases() -> list[Case]:
    return [case for page in sorted(FOLDER.glob("*.md")) for case in read_page(page)]


def write_back(case: Case, refused: str) -> None:
    """Put the refusal, or none, into the page of the case."""
    content = case.page.read_text("utf-8")
    start = content.index(f"## {case.title}\n")
    end = content.find("\n## ", start)
    section = content[start : end if end >= 0 else len(content)]
    kept = re.sub(r"\n```error\n.*?^```\n", "", section, flags=re.MULTILINE | re.DOTALL).rstrip()
    new = f"{kept}\n\n```error\n{refused}```\n" if refused else f"{kept}\n"
    case.page.write_text(content[:start] + new + (content[end:] if end >= 0 else ""), "utf-8")
