"""Reads and runs schedules that were written after other projects' tests of scheduling.

A page of `schedules/` holds sections `## title`: what is scheduled, as a fenced `tsched` program, or a compute with a task
that binds its sizes; a fenced `call` with the steps, one a line; and, if a step must be refused, a fenced `error` with the
code and the message, and the repair. A section without a fenced `tsched` schedules what the one before it does.

A fenced `numpy` behind a program is a reference of its own: `def it(A, …)` takes the inputs as NumPy arrays and returns the
outputs in order. Integers are drawn from all of their type, unless `def given(A, …)` returns the inputs in place of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from campaigns.emulated import is_bound
from campaigns.scheduled_pages import FENCE, is_compute, scheduled
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.faces.api.kernel import failed
from tensorc_dsl.ir.program import Program
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.schedule.step import ScheduleRefusal, refusal_diagnostic

FOLDER = Path(__file__).parent / "schedules"


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
    numpy: str = ""

    @property
    def name(self) -> str:
        return f"{self.page.stem}: {self.title}"

    @property
    def is_compute(self) -> bool:
        return is_compute(self.text)

    def run(self) -> Scheduled:
        """Raises TschedError or ScheduleRefusal as the first step that is refused does, or what is wrong with the text."""
        return Scheduled(*scheduled(self.text, self.steps))

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


def told(d: Diagnostic) -> str:
    """The code, the message and the repair."""
    return "\n".join([f"{d.code}: {d.message}", *(f"help: {n.text}" for n in d.notes if n.kind == "help")]) + "\n"


def read_page(page: Path) -> list[Case]:
    """The cases of a page, in order."""
    out: list[Case] = []
    text = numpy = ""
    for section in re.split(r"^## ", page.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        fences: Mapping[str, str] = dict(FENCE.findall(section))
        if not fences:
            continue
        if "tsched" in fences:
            text, numpy = fences["tsched"], fences.get("numpy", "")
        title = section.split("\n", 1)[0].strip()
        out.append(Case(page, title, text, fences["call"], fences.get("error", ""), numpy))
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
