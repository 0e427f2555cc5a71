"""From a checked file to spaces: which program a task means, and which space or schedule is over it."""

from __future__ import annotations

from tensorc_dsl.check.compute import elaborate
from tensorc_dsl.check.items import task_bindings
from tensorc_dsl.check.scope import CheckedFile
from tensorc_dsl.interp.space import Space
from tensorc_dsl.interp.values import error
from tensorc_dsl.ir.target import Target
from tensorc_dsl.syntax import tree


def task_space(file: CheckedFile, name: str, target: Target) -> Space:
    """The space of a task: the one it names with `with`, else the file's schedule for its compute, else its space.

    Raises KeyError when the file has no such task, TschedError where there is no space to choose, or several.
    """
    task = file.tasks[name]
    program = elaborate(file.computes[task.compute], task_bindings(task), name)
    return Space(_definition(file, task), task.compute, program, target, file.modules)


def _definition(file: CheckedFile, task: tree.TaskDef) -> tree.SpaceDef | tree.ScheduleDef:
    if task.with_ is not None:
        named = file.schedules.get(task.with_) or file.spaces.get(task.with_)
        if named is None:
            raise error("E0551", f"there is no space or schedule `{task.with_}`", task.span)
        return named
    fitting = [s for s in file.schedules.values() if s.compute == task.compute]
    choices: list[tree.SpaceDef] | list[tree.ScheduleDef] = fitting or list(file.spaces.values())
    if len(choices) == 1:
        return choices[0]
    if not choices:
        raise error(
            "E0552", f"nothing says how `{task.compute}` may be computed", task.span, "this task has no space",
            f"write `schedule … for {task.compute}`, or `use std.cpu` for the library's space",
        )  # fmt: skip
    names = ", ".join(f"`{c.name}`" for c in choices)
    raise error(
        "E0553", f"{len(choices)} ways to compute `{task.compute}`: {names}", task.span, "which one?",
        f"say it: `task {task.name} = {task.compute}(…) with {choices[0].name}`",
    )  # fmt: skip


def frozen_space(file: CheckedFile, space: Space) -> Space:
    """The space of a frozen schedule: the file's one schedule, over the same program and machine.

    Raises TschedError when the file has no schedule for the space's compute, or several.
    """
    found = [s for s in file.schedules.values() if s.compute == space.compute]
    if len(found) == 1:
        return Space(found[0], space.compute, space.program, space.target, file.modules)
    others = ", ".join(f"`{s.name}` for `{s.compute}`" for s in file.schedules.values()) or "no schedule"
    problem = f"{len(found)} schedules" if found else "no schedule"
    raise error("E0554", f"{file.source.name} has {problem} for `{space.compute}`", None, help=f"it has {others}")
