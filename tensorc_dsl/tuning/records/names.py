"""Names in records: tasks that are equal up to names share records, and each record says the names that its trace uses.

Such a trace is used for another task by exchanging its free names, those of arguments, buffers and blocks, for the names at
the same positions there. Nothing is taken on trust: the text that results is expanded, proved and compared as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.ir.nameless import in_scope
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program, fresh
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.syntax.traversal import is_node, node_fields
from tensorc_dsl.tuning.records.trial import Trial, keys_of, program_key


@frozen
class Named:
    """A task by its key, with names of its parts."""

    key: str
    names: tuple[str, ...]


def named(key: str, text: str) -> Named | None:
    """The task with that key and that program as text; None if the key is none of it. It may be that of format 2."""
    try:
        program = parse_program(Source("workload", text))
    except TschedError:
        return None
    return Named(program_key(program), in_scope(program)) if key in keys_of(program) else None


def carried(trial: Trial, tasks: Mapping[str, Named]) -> Trial:
    """The trial with the key that its task has now; `tasks` has the tasks by the keys in the file."""
    task = tasks.get(trial.task_key)
    return trial if task is None or task.key == trial.task_key else replace(trial, task_key=task.key, names=task.names)


def trace_for(trial: Trial, program: Program, compute: str) -> str:
    """The trace of a record as a schedule for the compute of a task with the record's key, in the task's names.

    A text that cannot be read is returned as it is: who expands it reports that.
    """
    own = in_scope(program)
    if not trial.names or len(trial.names) != len(own):
        return trial.trace
    try:
        items = parse(Source("record", trial.trace)).items
    except TschedError:
        return trial.trace
    match items:
        case (tree.ScheduleDef() as schedule,):
            edits = dict(_Renamer(dict(zip(trial.names, own, strict=True)), trial.trace).schedule(schedule, compute))
        case _:
            return trial.trace
    text = trial.trace
    for span in sorted(edits, key=lambda s: -s.start):
        text = text[: span.start] + edits[span] + text[span.end :]
    return text


class _Renamer:
    """The places of names in a straight-line schedule, with the names that they get.

    A name that the schedule binds keeps its own, unless a part of the program has that name in the other task.
    """

    def __init__(self, free: dict[str, str], text: str) -> None:
        self._now = free
        self._new = {*free.values()}
        self._used = {*free, *self._new, *_words(text)}

    def schedule(self, s: tree.ScheduleDef, compute: str) -> Iterator[tuple[Span, str]]:
        yield s.compute.span, compute
        yield from self._body(s.body)

    def _body(self, body: tuple[tree.Stmt, ...]) -> Iterator[tuple[Span, str]]:
        for statement in body:
            match statement:
                case tree.Let(pattern=pattern, value=value):
                    yield from self._uses(value)
                    yield from self._binds(pattern)
                case tree.DrawStmt(name=name, distribution=call, pin=pin):
                    yield from self._uses(call)
                    yield from self._uses(pin)
                    yield from self._binds(name)
                case tree.Select(cases=cases):
                    now = dict(self._now)
                    for c in cases:
                        yield from self._body(c.body)
                        self._now = dict(now)
                case _:
                    yield from self._uses(statement)

    def _binds(self, pattern: tree.Pattern) -> Iterator[tuple[Span, str]]:
        for p in pattern.items if isinstance(pattern, tree.ListPattern) else (pattern,):
            if p.name != "_":
                self._now[p.name] = fresh(p.name, self._used) if p.name in self._new else p.name
                yield p.span, self._now[p.name]

    def _uses(self, node: object, own: frozenset[str] = frozenset()) -> Iterator[tuple[Span, str]]:
        match node:
            case tree.Name(id=name, span=span):
                if name in self._now and name not in own:
                    yield span, self._now[name]
            case tree.CallExpr(function=tree.Name(), args=args, kwargs=kwargs):
                yield from self._uses(args, own)
                yield from self._uses(kwargs, own)
            case tree.Lambda(params=params, results=results):
                yield from self._uses(results, own | {str(p) for p in params})
            case tuple():
                for part in cast("tuple[object, ...]", node):
                    yield from self._uses(part, own)
            case _ if is_node(type(node)):
                for name in node_fields(type(node)):
                    yield from self._uses(getattr(node, name), own)
            case _:
                pass


def _words(text: str) -> set[str]:
    return {*"".join(c if c.isalnum() or c == "_" else " " for c in text).split()}
