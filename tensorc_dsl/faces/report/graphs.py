"""The graph of a model for people: its groups and their tasks as text, and as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from math import ceil

from tensorc_dsl.base.units import bytes_, counted, operations
from tensorc_dsl.check.models import Call, ModelPlan, View, shape_of
from tensorc_dsl.faces.report.results import columns
from tensorc_dsl.graph.grouping import Grouped
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.work import bytes_moved, flops


def format_groups(name: str, before: ModelPlan, made: Grouped) -> str:
    """The tasks of a model with their calls, operations and bytes, and its steps in order, each with the calls that it joins.

    Operations are those of one call, and bytes those of its arguments and results. `before` is the model without rules.
    """
    plan = made.plan
    used = Counter(s.task for s in plan.steps if isinstance(s, Call))
    total = sum(n * flops(plan.programs[t]) for t, n in used.items())
    moved = sum(n * bytes_moved(plan.programs[t]) for t, n in used.items())
    rows = [("task", "calls", "operations", "bytes")]
    by_work = sorted(used, key=lambda t: -used[t] * flops(plan.programs[t]))
    rows += [
        (t, str(used[t]), operations(flops(plan.programs[t])), bytes_(bytes_moved(plan.programs[t]))) for t in by_work
    ]
    calls = sum(isinstance(s, Call) for s in before.steps)
    head = (
        f"model {name}: {counted(calls, 'call')} of {counted(len(before.tasks), 'task')}, joined into "
        f"{counted(used.total(), 'call')} of {counted(len(used), 'task')}; {operations(total)} operations, {bytes_(moved)}\n"
    )
    return f"{head}\n{columns(rows)}\n\n{_steps(made)}"


def _steps(made: Grouped) -> str:
    inner = _joined(made)
    lines: list[str] = []
    for s in made.plan.steps:
        if isinstance(s, View):
            lines.append(f"{s.result} = reshape({s.argument}, {list(shape_of(made.plan.values[s.result]))})")
            continue
        left = s.results[0] if len(s.results) == 1 else f"({', '.join(s.results)})"
        lines.append(f"{left} = {s.task}({', '.join(s.arguments)})")
        lines += [f"    {text}" for text in inner.get(s.results, ())]
    return "\n".join(lines) + "\n"


def _joined(made: Grouped) -> Mapping[tuple[str, ...], Sequence[str]]:
    """By the results of a call that joins others the stages of its compute."""
    stages = {n: [" ".join(s.span.text.split()) for s in c.stages] for n, c in made.computes.items()}
    return {s.results: stages[s.task] for s in made.plan.steps if isinstance(s, Call) and s.task in stages}


# The picture: a row for each step behind what it reads, a box for each call, in the color of its task.


_WIDTH, _BOX, _LEVEL, _GAP = 220, 34, 62, 24
_COLORS = ("#eef3fb", "#fdf0e3", "#eaf6ec", "#fbecf0", "#f1eefb", "#e9f6f8", "#f8f6e3", "#f3efe9")


def graph_picture(name: str, made: Grouped) -> str:
    """The calls of a model as SVG, each below those whose values it reads; calls of one task have one color."""
    plan, inner = made.plan, _joined(made)
    source = {s.result: s.argument for s in plan.steps if isinstance(s, View)}
    calls = [s for s in plan.steps if isinstance(s, Call)]
    maker = {r: n for n, s in enumerate(calls) for r in s.results if r != "_"}
    tasks = list(dict.fromkeys(s.task for s in calls))
    level: list[int] = []
    edges: list[tuple[int, int]] = []
    for n, s in enumerate(calls):
        read = list(dict.fromkeys(k for a in s.arguments if (k := maker.get(_origin(a, source))) is not None))
        level.append(max((level[k] + 1 for k in read), default=0))
        edges += [(k, n) for k in read]
    rows = Counter[int]()
    at: list[tuple[int, int]] = []
    for l in level:
        at.append((_GAP + rows[l] * (_WIDTH + _GAP), _GAP + l * _LEVEL))
        rows[l] += 1
    width = _GAP + max(rows.values(), default=0) * (_WIDTH + _GAP)
    height = ceil(_GAP + len(rows) * _LEVEL)
    boxes = [
        _box(x, y, s, plan.programs[s.task], _COLORS[tasks.index(s.task) % len(_COLORS)], inner.get(s.results, ()))
        for (x, y), s in zip(at, calls, strict=True)
    ]
    lines = [_line(at[a], at[b]) for a, b in edges]
    size = f'width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}">',
            f"<title>The calls of the model {escape(name)}, each below those whose values it reads</title>",
            f'<rect {size} fill="#ffffff"/>',
            '<g fill="none" stroke="#7a869a" stroke-width="1.2">',
            *lines,
            "</g>",
            '<g stroke="#3c5a96" font-family="monospace" font-size="11">',
            *boxes,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _origin(value: str, source: Mapping[str, str]) -> str:
    while value in source:
        value = source[value]
    return value


def _line(first: tuple[int, int], second: tuple[int, int]) -> str:
    (x, y), (u, v) = (first[0] + _WIDTH // 2, first[1] + _BOX), (second[0] + _WIDTH // 2, second[1])
    return f'<path d="M{x},{y} C{x},{(y + v) // 2} {u},{(y + v) // 2} {u},{v}"/>'


def _box(x: int, y: int, s: Call, program: Program, color: str, inner: Sequence[str]) -> str:
    told = "\n".join(inner) or s.task
    work = f"{operations(flops(program))}, {bytes_(bytes_moved(program))}"
    text = s.task if len(s.task) < 32 else f"{s.task[:30]}…"
    return (
        f'<g><title>{escape(told)}</title><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_BOX}" rx="5" fill="{color}"/>'
        f'<text x="{x + 8}" y="{y + 14}" fill="#1b2a4a" stroke="none">{escape(text)}</text>'
        f'<text x="{x + 8}" y="{y + 28}" fill="#5a6a8a" stroke="none">{escape(work)}</text></g>'
    )
