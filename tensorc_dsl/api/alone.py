"""The file of a frozen schedule, with the `use` of its compute and its task: it is run, edited and tuned by itself."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from tensorc_dsl.api.drawing import sample
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.interp.tasks import task_space
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.machine.host import host_target
from tensorc_dsl.packages.resolve import Resolver
from tensorc_dsl.source import Source
from tensorc_dsl.trace.trace import Trace
from tensorc_dsl.visible import visible_line

if TYPE_CHECKING:
    from tensorc_dsl.api.tasks import Task


def written(task: Task, trace: Trace, path: Path, *options: str) -> str:
    """The text of a file at `path` with the schedule: alone, where it can be; else with the command that replays it, with
    these options; a task of no file has no command."""
    text = alone(task, trace, path)
    if text is not None:
        return text
    command = task.command("replay", str(path), *options)
    return f"// {visible_line(command)}\n{trace.text}" if command else trace.text


def alone(task: Task, trace: Trace, path: Path) -> str | None:
    """The schedule as the text of a file at `path` that needs no other one but those that it uses.

    None where no such text says the same: no `use` reaches the compute from the folder of `path`, as where the file of the
    task is in another folder, or the target is not this machine. What is returned has been read back: it has the task, with
    the same program and target, and its schedule expands to the same steps.
    """
    uses = _uses(task, trace, path)
    if uses is None:
        return None
    definition = task.definition
    bindings = ", ".join(f"{name}={value.span.text}" for name, value in definition.bindings)
    text = f"{uses}\n{trace.text}\ntask {task.name} = {trace.compute}({bindings}) with {trace.name}\n"
    try:
        source = Source.of(text.encode(), str(path))
        again = task_space(load_source(source, Resolver(path)), task.name, host_target(task.threads), None)
        same = again.target == task.target and format_program(again.program) == format_program(task.program)
        return text if same and sample(again, task.name, 0).text == trace.text else None
    except TschedError:
        return None


def _uses(task: Task, trace: Trace, path: Path) -> str | None:
    """The `use` lines for the compute and the instructions of the schedule; None if a file cannot be named in one."""
    checked = task.file
    words = set(re.findall(r"\w+", "\n".join(trace.lines)))
    items = [checked.computes.get(trace.compute), *(i for name, i in checked.intrinsics.items() if name in words)]
    names: defaultdict[str, set[str]] = defaultdict(set)
    for item in items:
        place = None if item is None else _place(item.span.source, task, path)
        if item is None or place is None:
            return None
        names[place].add(str(item.name))
    return "".join(f"use {place}.{{{', '.join(sorted(some))}}}\n" for place, some in sorted(names.items()))


def _place(source: Source, task: Task, path: Path) -> str | None:
    """The path of a `use` in a file at `path` for what `source` declares; None if it has none."""
    for used, sources in task.file.uses.items():
        if any(s.name == source.name for s in sources):
            return ".".join(used)
    file = Path(source.name)
    if not source.name.startswith("std/"):
        try:
            file = file.resolve().relative_to(path.resolve().parent)
        except ValueError:
            return None
    parts = file.with_suffix("").parts
    return ".".join(parts) if all(re.fullmatch(r"[A-Za-z_]\w*", part, re.ASCII) for part in parts) else None
