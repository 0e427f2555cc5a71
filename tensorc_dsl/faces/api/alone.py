"""The file of a frozen schedule, with its compute and its task: it is checked, run, edited and tuned by itself."""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.base.visible import visible_line
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api.drawing import sample
from tensorc_dsl.faces.packages.files import SUFFIX
from tensorc_dsl.faces.packages.resolve import Resolver
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.print import format_buffer, format_program
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import format_item
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.records.trial import program_key

if TYPE_CHECKING:
    from tensorc_dsl.faces.api.tasks import Task


def written(task: Task, trace: Trace, path: Path, *options: str) -> str:
    """The text of a file at `path` with the schedule: alone, where it can be; else with the command that replays it, with
    these options; a task of no file has no command."""
    text = alone(task, trace, path)
    if text is not None:
        return text
    command = task.command("replay", str(path), *options)
    return f"// {visible_line(command)}\n{trace.titled}" if command else trace.titled


def alone(task: Task, trace: Trace, path: Path) -> str | None:
    """The schedule as the text of a file at `path` that needs no other one but those that it uses.

    The compute is brought by a `use` where one reaches it from the folder of `path`; else it is written out. None where no
    such text says the same: the target is not this machine, or two items that must be written out have one name. What is
    returned has been read back: it has the task, with the same program and target, and its schedule expands to the same
    steps.
    """
    bindings = ", ".join(f"{name}={value.span.text}" for name, value in task.definition.bindings)
    try:
        needed = _needed(task, trace, path)
        if needed is None:
            return None
        text = f"{needed}\n{trace.titled}\ntask {task.name} = {trace.compute}({bindings}) with {trace.name}\n"
        source = Source.of(text.encode(), str(path))
        again = task_space(load_source(source, Resolver(path)), task.name, host_target(task.threads), None)
        same = again.target == task.target and format_program(again.program) == format_program(task.program)
        return text if same and sample(again, task.name, 0).text == trace.text else None
    except TschedError:
        return None


def schedule_in(text: bytes, task: Task, path: Path) -> Trace | str:
    """The schedule for the task in the text of such a file at `path`; else what is in it, in words.

    It is that of a task of the file with the same program and target; in a file without tasks, the schedule for the compute.
    Only instructions of the task's own file are in it: nobody has vouched for those that the text may declare.
    """
    others: list[str] = []
    try:
        source = Source.of(text, str(path))
        names = [item.name for item in parse(source).items if isinstance(item, tree.TaskDef)]
        same = not names
        checked = load_source(source, Resolver(path)) if names else task.file
        for name in names:
            space = task_space(checked, name, host_target(task.threads), None)
            if program_key(space.program) == program_key(task.program) and space.target == task.target:
                same = True
            else:
                arrays = (", ".join(map(format_buffer, some)) for some in (space.program.inputs, space.program.outputs))
                others.append(f"{name}({next(arrays)}) -> {next(arrays)}")
        found = task.expand(source) if same else None
    except (TschedError, UnicodeDecodeError) as e:
        first = e.diagnostics[0] if isinstance(e, TschedError) else None
        return f"no schedule for this task ({first.code}: {first.message})" if first else "no text"
    if found is None:
        return f"the schedule of another task, {'; '.join(others)}"
    return "a schedule with open draws" if found.open_draws else found


Item = tree.ComputeDef | tree.ReducerDef | tree.IntrinsicDef


def _needed(task: Task, trace: Trace, path: Path) -> str | None:
    """The compute and the instructions of the schedule, with all that they name: `use` lines, then what no `use` reaches.

    None if two of these items have one name. Raises TschedError (E0909).
    """
    checked = task.file
    words = set(re.findall(r"\w+", "\n".join(trace.lines)))
    waiting: list[Item | None] = [checked.computes.get(trace.compute)]
    waiting += [i for name, i in checked.intrinsics.items() if name in words]
    resolver = Resolver(path)
    found: dict[str, Item] = {}
    uses: defaultdict[str, set[str]] = defaultdict(set)
    inline: list[Item] = []
    while waiting:
        item = waiting.pop(0)
        if item is None or found.setdefault(str(item.name), item) is not item:
            return None
        place = _place(item.span.source, task, resolver)
        if place is not None:
            uses[place].add(str(item.name))
        elif item not in inline:
            inline.append(item)
            waiting += () if isinstance(item, tree.IntrinsicDef) else _named(item, task)
    lines = "".join(f"use {place}.{{{', '.join(sorted(some))}}}\n" for place, some in sorted(uses.items()))
    return "\n".join(filter(None, (lines, *(f"{format_item(i)}\n" for i in inline))))


def _named(item: tree.ComputeDef | tree.ReducerDef, task: Task) -> list[Item]:
    """The computes and reducers of other items that an item names."""
    seen = task.file.library.seen_by(item)
    words = set(re.findall(r"\w+", item.span.text)) - {item.name}
    return [i for name, i in (*seen.computes.items(), *seen.reducers.items()) if name in words]


def _place(source: Source, task: Task, resolver: Resolver) -> str | None:
    """The path by which a `use` in the resolver's file reaches what `source` declares; None if there is none."""
    paths = [used for used, sources in task.file.uses.items() if any(s.name == source.name for s in sources)]
    if source.name.startswith("std/"):
        return ".".join(paths[0]) if paths else source.name.removesuffix(SUFFIX).replace("/", ".")
    file = Path(source.name).resolve()
    if file == resolver.file.resolve():
        return None  # it is about to be replaced
    for folder in (resolver.folder, *(place.folder for place in resolver.shared)):
        with suppress(ValueError):
            paths.append(file.relative_to(folder.resolve()).with_suffix("").parts)
    for used in paths:
        with suppress(TschedError):
            if all(re.fullmatch(r"[A-Za-z_]\w*", part, re.ASCII) for part in used) and file in map(
                Path.resolve, resolver.locate(used)
            ):
                return ".".join(used)
    return None
