"""Joins the calls of a model by the rules of a graph space: what comes out is a plan of the same kind, with fewer calls.

A node of several calls becomes a compute that calls their computes, written as text, with literal sizes. Equal nodes are one
compute, and one task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from re import sub

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.models import RESHAPE, Call, ModelPlan, Step, View, free_name, shape_of
from tensorc_dsl.check.scope import CheckedFile
from tensorc_dsl.elaborate import compute as compute_layer
from tensorc_dsl.elaborate.bindings import attribute_kind, dimensions
from tensorc_dsl.elaborate.names import Definitions, Library
from tensorc_dsl.elaborate.views import VIEW
from tensorc_dsl.interp.problems import UNKNOWN_DRAW
from tensorc_dsl.interp.space import Space, outermost
from tensorc_dsl.ir.graph import Graph, GraphCall, GraphNode, inner_views, links, source_of, split_places
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.ir.target import GRAPH, Target
from tensorc_dsl.schedule.step import ScheduleRefusal, refusal_diagnostic
from tensorc_dsl.schedule.trace import handlers
from tensorc_dsl.schedule.trace.distribution import Decision, Listed
from tensorc_dsl.schedule.trace.trace import Decider, Draw, Site, Trace
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.format import expression_text
from tensorc_dsl.syntax.highlight.words import CONSTANTS, RESERVED
from tensorc_dsl.syntax.names import listed, near
from tensorc_dsl.syntax.parse import parse


@problem(
    "E0948",
    "{count} spaces or schedules say how the calls of `{model}` are joined: {names}",
    help="keep one of them; a space may contain others, and is then the one that counts",
)
def SEVERAL_SPACES(*, count: int, model: str, names: str) -> None: ...


VALUES = 4
"""The most other values of a draw that are alternatives."""

MOST_INDICES = 16
"""The names `i0`, `i1`, … are those of the indices of views in a group."""


@frozen
class Grouped:
    """A model whose calls are joined. `trace` has what the rules did, and their draws; its program is the graph.

    `computes` are those that the groups became, by name, in `library` with what they call.
    """

    plan: ModelPlan
    trace: Trace | None
    computes: Mapping[str, t.ComputeDef]
    library: Library


def graph_of(name: str, plan: ModelPlan) -> Graph:
    """The graph of a model: a node for each call whose results are used, and for each view."""
    calls: list[GraphCall] = []
    for step in plan.steps:
        match step:
            case View(argument=argument, result=result):
                calls.append(GraphCall(result, RESHAPE, None, (argument,), (result,)))
            case Call(task=task, arguments=arguments, results=results):
                made = next((r for r in results if r != "_"), None)
                if made is not None:
                    compute = str(plan.tasks[task].compute)
                    calls.append(GraphCall(made, compute, plan.programs[task], arguments, results))
    return Graph(
        name, (), (), (),
        nodes=tuple(GraphNode(c.name, (c,)) for c in calls),
        values=tuple(plan.values.values()),
        ends=frozenset(plan.outputs),
        weights=frozenset(plan.weights),
    )  # fmt: skip


def graph_space(file: CheckedFile, model: str, target: Target) -> Space | None:
    """The space over the graph of a model: the file's schedule for it, else of its spaces for graphs the one that is not part
    of another.

    None if there is none. Raises TschedError (E0948) if there are several.
    """
    own = [s for s in file.schedules.values() if s.compute == model and s.prior is None and model not in file.computes]
    known = [s for s in file.spaces.values() if s.target == GRAPH and s.prior is None]
    spaces: list[t.ScheduleDef] | list[t.SpaceDef] = own or outermost(known)
    if not spaces:
        return None
    if len(spaces) > 1:
        names = listed([s.name for s in spaces])
        raise TschedError(SEVERAL_SPACES(None, count=len(spaces), model=model, names=names))
    return Space(spaces[0], model, graph_of(model, file.plans[model]), target, file.modules)


def likeliest(site: Site) -> Decision:
    """A decider without chance: the value of the largest weight, the first of several; of draws without weights that of a
    seed."""
    own = site.distribution
    if isinstance(own, Listed):
        values = own.values_listed()
        return values[max(range(len(values)), key=lambda n: (own.weights[n], -n))]
    drawn = [own.sample(np.random.Generator(np.random.Philox(seed))) for seed in range(8)]
    return max(drawn, key=own.log_prob)


def grouped(
    file: CheckedFile,
    model: str,
    target: Target,
    decisions: Mapping[str, Decision] | None = None,
    decide: Decider = likeliest,
) -> Grouped:
    """The plan of a model of the file with its calls joined by the space for graphs of the file, if there is one.

    Draws of the rules have the values in `decisions`, by name; others are decided by `decide`. Raises TschedError, with E0556
    if a draw of one of the names is never made, and with E0506 if it cannot have that value.
    """
    plan, space, decisions = file.plans[model], graph_space(file, model, target), decisions or {}
    try:
        trace = None if space is None else handlers.condition(space, decisions).expand(decide)
    except ScheduleRefusal as e:
        raise TschedError(refusal_diagnostic(e)) from None
    for name in decisions:
        if trace is None or name not in trace.decisions:
            known = () if trace is None else trace.decisions
            raise TschedError(UNKNOWN_DRAW(None, near(name, known), task=model, name=name))
    if trace is None:
        return Grouped(plan, None, {}, file.library)
    assert isinstance(trace.program, Graph)
    return _Writer(file, plan, trace.program).run(trace)


# Groups as computes.


@frozen
class _Group:
    """A node as a compute: `text` is all behind its name; arguments and results are values of the model by position."""

    stem: str
    text: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(slots=True)
class _Writer:
    file: CheckedFile
    plan: ModelPlan
    graph: Graph
    computes: dict[str, str] = field(default_factory=dict[str, str])
    """By the text of a group the name of its compute."""
    steps: list[Step] = field(default_factory=list[Step])

    def run(self, trace: Trace) -> Grouped:
        known = {c.results: c for c in self.plan.steps if isinstance(c, Call)}
        found = links(self.graph)
        taken = {*self.file.computes, *self.plan.tasks}
        for n, node in enumerate(self.graph.nodes):
            views = [c for c in node.calls if c.program is None]
            made = {r for c in node.calls if c.program is not None for r in c.results}
            wanted = {*found.written(n)}
            # Views of what comes from outside go before it, and those that are read outside behind it.
            before = [v for v in views if source_of(node, v) not in made]
            after = [v for v in views if source_of(node, v) in made and v.results[0] in wanted]
            self.steps += (View(v.arguments[0], v.results[0]) for v in before)
            calls = [c for c in node.calls if c.program is not None]
            out = wanted - {v.results[0] for v in views} | {source_of(node, v) for v in after}
            if len(calls) == 1:
                self.steps.append(known[calls[0].results])
            elif out:  # what nobody reads is left out
                group = self._group(node, out)
                if group.text not in self.computes:
                    self.computes[group.text] = free_name(group.stem, {*taken, *self.computes.values()})
                self.steps.append(Call(self.computes[group.text], group.arguments, group.results))
            self.steps += (View(source_of(node, v), v.results[0]) for v in after)
        return self._finished(trace)

    def _finished(self, trace: Trace) -> Grouped:
        source = Source(
            f"<groups of {self.graph.name}>", "\n".join(f"compute {n}{x}" for x, n in self.computes.items())
        )
        computes = {str(c.name): c for c in parse(source).items if isinstance(c, t.ComputeDef)} if self.computes else {}
        own = self.file.library.files.get(self.file.source.name)
        called = {_called(n): c for n, c in self.file.computes.items()}
        seen = Definitions({**called, **computes}, own.reducers if own is not None else {})
        library = replace(self.file.library, files={**self.file.library.files, source.name: seen}, heights={})
        used = dict.fromkeys(s.task for s in self.steps if isinstance(s, Call))
        tasks = {n: self.plan.tasks[n] for n in used if n in self.plan.tasks}
        programs = {n: self.plan.programs[n] for n in tasks}
        for name, c in computes.items():
            programs[name] = compute_layer.elaborate(c, {}, name, library)
            tasks[name] = t.TaskDef(c.name, c.name, (), (), None, "", c.span)
        tasks, programs = {n: tasks[n] for n in used}, {n: programs[n] for n in used}
        held = {*self.plan.inputs, *self.plan.weights, *self.plan.outputs}
        held |= {v for s in self.steps for v in ((s.result,) if isinstance(s, View) else s.results)}
        values = {n: b for n, b in self.plan.values.items() if n in held}
        plan = replace(self.plan, values=values, steps=tuple(self.steps), tasks=tasks, programs=programs)
        return Grouped(plan, trace, computes, library)

    def _group(self, node: GraphNode, wanted: Collection[str]) -> _Group:
        """The compute of a node that makes the wanted values, and whatever else their calls make besides."""
        words = _Words(
            {*RESERVED, *CONSTANTS, *map(_called, self.file.computes), *(f"i{n}" for n in range(MOST_INDICES))}
        )
        calls = [c for c in node.calls if c.program is not None]
        # A call makes outputs, or values that stay inside: all of what it makes, as a stage does.
        out = [r for c in calls if any(r in wanted for r in c.results) for r in c.results if r != "_"]
        made = {r for c in calls for r in c.results}
        inner = {v.results[0]: v for v in inner_views(node)}
        parameters: dict[str, bool] = {}
        for c in calls:
            callee = self.file.computes[c.compute]
            for p, a in zip(callee.inputs, c.arguments, strict=True):
                if a not in made and a not in inner:
                    constant = p.constant and a in self.graph.weights
                    parameters[a] = parameters.get(a, False) or constant
                    words.add(a, str(p.name))
        for r in out:
            words.add(r, "Y")
        inputs = ", ".join(f"{words.of[a]}: {'const ' * c}{_type(self.plan.values[a])}" for a, c in parameters.items())
        outputs = ", ".join(f"{words.of[r]}: {_type(self.plan.values[r])}" for r in out)
        lines: list[str] = []
        for c in node.calls:
            if c.program is not None:
                lines.append(self._stage(c, out, words))
            elif c.results[0] in inner:
                lines.append(self._view(node, c, words))
        body = "".join(f"    {line}\n" for line in lines)
        text = f"({inputs}) -> {outputs} {{\n{body}}}\n"
        return _Group(_stem(calls), text, tuple(parameters), tuple(out))

    def _stage(self, c: GraphCall, out: Collection[str], words: _Words) -> str:
        callee = self.file.computes[c.compute]
        bindings = self.plan.tasks[self._task(c)].bindings
        implied = {str(e.id) for p in callee.inputs for e in p.type.shape if isinstance(e, t.Name)}
        types = {p.type.dtype for p in callee.inputs}
        implied |= {str(a.name) for a in callee.attributes if attribute_kind(a) == "dtype" and a.name in types}
        known = {*dimensions(callee, strides=False), *(a.name for a in callee.attributes)}
        usual = {str(a.name): expression_text(a.default) for a in callee.attributes if a.default is not None}
        said = [(n, expression_text(e)) for n, e in bindings if n in known and n not in implied]
        given = [f"{n}={text}" for n, text in said if usual.get(n) != text]
        names = [r if r == "_" else words.add(r, "v") for r in c.results]
        left = names[0] if len(names) == 1 else f"({', '.join(names)})"
        let = "" if any(r in out for r in c.results) else "let "
        return f"{let}{left} = {_called(c.compute)}({', '.join([*(words.of[a] for a in c.arguments), *given])})"

    def _task(self, c: GraphCall) -> str:
        return next(n for n, p in self.plan.programs.items() if p is c.program)

    def _view(self, node: GraphNode, view: GraphCall, words: _Words) -> str:
        source, result = source_of(node, view), view.results[0]
        own, shape = shape_of(self.plan.values[source]), shape_of(self.plan.values[result])
        indices = [f"i{n}" for n in range(len(shape))]
        places = split_places(own, shape, indices)
        assert places is not None, "`join_nodes` refuses other views"
        left = ", ".join(f"{i} in {size}" for i, size in zip(indices, shape, strict=True))
        return f"let {words.add(result, 'v')}[{left}] = view({words.of[source]}[{', '.join(places)}])"


def _called(compute: str) -> str:
    """What a group calls a compute of the file: one of the name `view` would hide the views."""
    return f"{VIEW}_compute" if compute == VIEW else compute


def _type(b: Buffer) -> str:
    shape = shape_of(b)
    return f"{b.dtype.name}{list(shape)}" if b.shape else b.dtype.name


def _stem(calls: list[GraphCall]) -> str:
    """A name for a compute that calls others: those of the first ones without their numbers, as `conv_add_relu`."""
    stems = list(dict.fromkeys(sub(r"_\d+$", "", c.compute) for c in calls))
    return "_".join(stems[:4])


@dataclass(slots=True)
class _Words:
    """Names in a compute for values of the model."""

    taken: set[str]
    of: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, value: str, stem: str) -> str:
        if value not in self.of:
            self.of[value] = free_name(stem, self.taken)
            self.taken.add(self.of[value])
        return self.of[value]


# What the rules could have drawn. A network repeats its blocks, and so its rules draw the same again and again. What is right
# in one place is right in all that are equal, so they are one alternative, and a model has few.


@frozen
class Alternative:
    """A value that draws could have had. `draw` says which, without the places, `products.chained_products`, and `wanted` has
    the value by the titles of the draws."""

    draw: str
    value: Decision
    wanted: Mapping[str, Decision]


def alternatives(plan: ModelPlan, trace: Trace) -> list[Alternative]:
    """The alternatives to the draws of a trace of graph rules that are not pinned; `plan` is what it made of the model.

    Two draws are in one alternative if they are the same draw of the same module, and the tasks of the node that the module
    was applied to and of its producers are the same.
    """
    graph = trace.program
    assert isinstance(graph, Graph)
    found = links(graph)
    task = {r: s.task for s in plan.steps if isinstance(s, Call) for r in s.results}
    tasks = [next((task[r] for c in n.calls for r in c.results if r in task), "") for n in graph.nodes]

    def around(d: Draw) -> tuple[object, ...]:
        n = found.position.get(d.subject)
        return (d.subject,) if n is None else (tasks[n], *(tasks[k] for k in found.producers[n]))

    wanted: dict[tuple[object, ...], dict[str, Decision]] = {}
    for d in trace.open_draws:
        draw = d.title.removesuffix(f" of {d.subject}")
        for value in d.distribution.moves(d.decision)[:VALUES]:
            wanted.setdefault((draw, value, type(value), *around(d)), {})[d.title] = value
    return [Alternative(str(key[0]).partition("[")[0], next(iter(some.values())), some) for key, some in wanted.items()]


def deciding(values: Mapping[str, Decision]) -> Decider:
    """A decider of these values, by the titles of draws, where they are legal; others have their likeliest value."""

    def decide(site: Site) -> Decision:
        value = values.get(site.title)
        return value if value is not None and site.distribution.contains(value) else likeliest(site)

    return decide


def decided(trace: Trace) -> Mapping[str, Decision]:
    """The decisions of a trace by the titles of its draws."""
    return {d.title: d.decision for d in trace.decided}
