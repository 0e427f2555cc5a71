"""Checks `model` items: each call fits its compute, each value is named once, and what comes out is a plan of calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.check.problems import UNKNOWN_COMPUTE, where
from tensorc_dsl.elaborate import compute as compute_layer
from tensorc_dsl.elaborate.bindings import Bound, Environment, extent
from tensorc_dsl.elaborate.calls import Argument, call_environment, param_type
from tensorc_dsl.elaborate.names import Library
from tensorc_dsl.elaborate.problems import UNKNOWN_NAME, Invalid
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.print import format_buffer
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import near, near_or_elsewhere


@problem("E0449", "`{name}` is a value of the model already", help="give one of them another name")
def NAMED_TWICE(*, name: str) -> None: ...
@problem(
    "E0449",
    "`{text}` is no call",
    help="each line of a model calls a compute with values, `let h = matmul(x, w)`, or `reshape`",
)
def NO_CALL(*, text: str) -> None: ...
@problem("E0449", "`{text}` is no value of the model", help="give it a name of its own first: `let v = {text}`")
def NO_VALUE(*, text: str) -> None: ...
@problem(
    "E0449",
    "`{compute}` returns {count}; named here: {named}",
    help="write `let (a, b) = f(x)`, and `_` for one to drop",
)
def OTHER_COUNT(*, compute: str, count: str, named: int) -> None: ...
@problem("E0449", "`{name}` is declared as `{wanted}`, and computed as `{found}`", help="declare what is computed")
def OTHER_TYPE(*, name: str, wanted: str, found: str) -> None: ...
@problem("E0449", "the output `{name}` is never computed", help="name it on the left of a call, without `let`")
def NOT_COMPUTED(*, name: str) -> None: ...
@problem("E0449", "`{name}` is no output of the model", help="write `let {name} = …`, or declare it behind the `->`")
def NO_OUTPUT(*, name: str) -> None: ...
@problem(
    "E0449",
    "`{name}` has {count} elements, and the shape {wanted}",
    help="the numbers of a shape multiply to its elements",
)
def OTHER_ELEMENTS(*, name: str, count: int, wanted: str) -> None: ...
@problem("E0449", "the sizes of `{name}` are not all numbers", help="write them out: a model has one size")
def OPEN_VALUE(*, name: str) -> None: ...
@problem("E0449", "`{name}` is {what}", help="the values of a model are plain: dense, and different arrays")
def NOT_PLAIN(*, name: str, what: str) -> None: ...


RESHAPE = "reshape"
"""`reshape(x, [2, 3])`: the elements of a value in another shape. A compute of that name in the file hides it."""


@frozen
class Call:
    """A call of a task: values by name, those given and those made; "_" for one that is dropped."""

    task: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]


@frozen
class View:
    """The elements of a value by another name, in a shape of their own."""

    argument: str
    result: str


Step = Call | View


@frozen
class ModelPlan:
    """What a model does: its steps in order, and the task of each distinct call, with its unscheduled program."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...]
    values: Mapping[str, Buffer]
    """By name: inputs, weights and all that is computed."""
    steps: tuple[Step, ...]
    tasks: Mapping[str, t.TaskDef]
    programs: Mapping[str, Program]


def shape_of(b: Buffer) -> tuple[int, ...]:
    """The shape of a value of a plan, in which all sizes are numbers."""
    return tuple(n for e in b.shape if (n := ir.constant(e)) is not None)


def check_model(
    item: t.ModelDef,
    computes: Mapping[str, t.ComputeDef],
    library: Library,
    broken: Collection[str],
    plans: dict[str, ModelPlan],
) -> list[Diagnostic]:
    """All findings about a model; without any, `plans` then has what it does."""
    checker = _Checker(item, computes, library, broken)
    checker.run()
    if not checker.found and not checker.skipped:
        inputs, outputs, weights = (
            tuple(str(p.name) for p in some) for some in (item.inputs, item.outputs, _tensors(item))
        )
        plans[str(item.name)] = ModelPlan(
            inputs, outputs, weights, checker.values, tuple(checker.steps), checker.tasks, checker.programs
        )
    return checker.found


def _tensors(item: t.ModelDef) -> tuple[t.TensorParam, ...]:
    return item.weights.tensors if item.weights is not None else ()


@dataclass(slots=True)
class _Checker:
    item: t.ModelDef
    computes: Mapping[str, t.ComputeDef]
    library: Library
    broken: Collection[str]
    found: list[Diagnostic] = field(default_factory=list[Diagnostic])
    values: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    steps: list[Step] = field(default_factory=list[Step])
    tasks: dict[str, t.TaskDef] = field(default_factory=dict[str, t.TaskDef])
    programs: dict[str, Program] = field(default_factory=dict[str, Program])
    skipped: bool = False
    """Whether a compute that is called has findings of its own."""
    _known: dict[tuple[str, tuple[tuple[str, Bound], ...]], str] = field(
        default_factory=dict[tuple[str, tuple[tuple[str, Bound], ...]], str]
    )
    _failed: set[str] = field(default_factory=set[str])
    """Values whose calls have findings."""

    def run(self) -> None:
        outputs: dict[str, Buffer] = {}
        for p in (*self.item.inputs, *_tensors(self.item)):
            if (b := self._declared(p)) is not None:
                self._name(p.name, b)
        for p in self.item.outputs:
            if (b := self._declared(p)) is not None:
                if p.name in outputs or p.name in self.values:
                    self.found.append(NAMED_TWICE(p.name.span, name=p.name))
                outputs[p.name] = b
        for s in self.item.calls:
            try:
                self._step(s, outputs)
            except Invalid as e:
                self.found += e.diagnostics
                self._failed |= {str(n) for n in s.names}
            except TschedError as e:
                note = where(f"called by model `{self.item.name}`", s.span)
                self.found += [replace(d, notes=(*d.notes, note)) for d in e.diagnostics]
                self._failed |= {str(n) for n in s.names}
        for p in self.item.outputs:
            if p.name not in self.values and p.name not in self._failed and p.name in outputs:
                self.found.append(NOT_COMPUTED(p.name.span, name=p.name))

    def _declared(self, p: t.TensorParam) -> Buffer | None:
        try:
            if p.strides or p.updates or p.constant:
                what = "declared `const`" if p.constant else "in memory that it describes"
                raise Invalid(NOT_PLAIN(p.name.span, name=p.name, what=what))
            shape = tuple(extent(e, Environment(), f"`{p.name}`") for e in p.type.shape)
            return Buffer(str(p.name), param_type(p, Environment()), shape)
        except Invalid as e:
            self.found += e.diagnostics
            self._failed.add(str(p.name))
            return None

    def _name(self, name: t.Word, b: Buffer) -> None:
        if name in self.values:
            raise Invalid(NAMED_TWICE(name.span, name=name))
        if len(shape_of(b)) != len(b.shape):
            raise Invalid(OPEN_VALUE(name.span, name=name))
        self.values[str(name)] = replace(b, name=str(name), constant=False)

    def _step(self, s: t.Stage, outputs: Mapping[str, Buffer]) -> None:
        if not s.is_let and (stray := [n for n in s.names if n not in outputs]):
            raise Invalid(*(NO_OUTPUT(n.span, name=n) for n in stray))
        if (
            s.indices
            or s.annotations
            or not isinstance(s.value, t.CallExpr)
            or not isinstance(s.value.function, t.Name)
        ):
            raise Invalid(NO_CALL(s.span, text=s.span.text))
        call, function = s.value, s.value.function
        compute = self.computes.get(function.id)
        if compute is None and function.id == RESHAPE:
            results = [self._view(s, call)]
        elif compute is None:
            notes = near_or_elsewhere(t.Word(function.id, function.span), self.computes)
            raise Invalid(UNKNOWN_COMPUTE(function.span, notes=notes, name=function.id))
        elif compute.name in self.broken:
            self.skipped = True
            raise Invalid
        else:
            results = self._call(s, call, compute)
        for name, b in results:
            self._name(name, b)
            if not s.is_let and (b.dtype, b.shape) != (outputs[name].dtype, outputs[name].shape):
                wanted, found = format_buffer(outputs[name]), format_buffer(replace(b, name=str(name)))
                raise Invalid(OTHER_TYPE(name.span, name=name, wanted=wanted, found=found))

    def _value(self, e: t.Expr) -> Argument:
        if not isinstance(e, t.Name):
            raise Invalid(NO_VALUE(e.span, text=e.span.text))
        if e.id in self._failed:
            raise Invalid
        if e.id not in self.values:
            notes = near(e.id, self.values, "a value is named before it is used")
            raise Invalid(UNKNOWN_NAME(e.span, what="value", name=e.id, notes=notes))
        return Argument(self.values[e.id], e.span)

    def _view(self, s: t.Stage, call: t.CallExpr) -> tuple[t.Word, Buffer]:
        match call:
            case t.CallExpr(args=(value, t.ListExpr(items=items)), kwargs=()) if not s.targets:
                source = self._value(value).buffer
            case _:
                raise Invalid(NO_CALL(call.span, text=call.span.text))
        shape = tuple(extent(e, Environment(), "a size") for e in items)
        result = replace(source, shape=shape)
        count = prod(shape_of(source))
        if len(shape_of(result)) != len(shape) or prod(shape_of(result)) != count:
            text = call.args[1].span.text
            raise Invalid(OTHER_ELEMENTS(call.span, name=source.name, count=count, wanted=text))
        self.steps.append(View(source.name, str(s.name)))
        return s.name, result

    def _call(self, s: t.Stage, call: t.CallExpr, compute: t.ComputeDef) -> list[tuple[t.Word, Buffer]]:
        arguments = [self._value(e) for e in call.args]
        inner = call_environment(compute, arguments, call, Environment())
        sizes = {n: v for n, e in inner.sizes.items() if (v := ir.constant(e)) is not None}
        computed = {name for name, _ in compute.where}
        given: dict[str, Bound] = {n: v for n, v in sizes.items() if n not in computed}
        given |= inner.floats
        given |= {n: d.name for n, d in inner.dtypes.items()}
        for p in (*compute.inputs, *compute.outputs):
            if p.strides or p.updates:
                raise Invalid(NOT_PLAIN(call.span, name=p.name, what=f"in memory that `{compute.name}` describes"))
        task = self._task(compute, given, s.span)
        made = self.programs[task].outputs
        order = {str(p.name): n for n, p in enumerate(compute.outputs)}
        made = sorted(made, key=lambda b: order[b.name])
        names = s.targets or (s.name,)
        if len(names) != len(made):
            count = f"{len(made)} tensor{'s' * (len(made) != 1)}"
            raise Invalid(OTHER_COUNT(s.span, compute=compute.name, count=count, named=len(names)))
        self.steps.append(Call(task, tuple(a.buffer.name for a in arguments), tuple(map(str, names))))
        return [(n, b) for n, b in zip(names, made, strict=True) if n != "_"]

    def _task(self, compute: t.ComputeDef, given: dict[str, Bound], at: Span) -> str:
        """The name of the task for these bindings, which is made if there is none."""
        key = (str(compute.name), tuple(sorted(given.items())))
        if key in self._known:
            return self._known[key]
        name = free_name(str(compute.name), self.tasks)
        self.programs[name] = compute_layer.elaborate(compute, given, name, self.library)
        bindings = tuple((t.Word(n, at), _written(v, at)) for n, v in given.items())
        self.tasks[name] = t.TaskDef(t.Word(name, at), compute.name, bindings, (), None, "", at)
        self._known[key] = name
        return name


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number if it is taken."""
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


def _written(value: Bound, at: Span) -> t.Expr:
    match value:
        case str():
            return t.Name(value, at)
        case int() | float() if value < 0:
            return t.Negate(t.Number(-value, at), at)
        case int() | float():
            return t.Number(value, at)
        case _:
            raise AssertionError("the sizes of a model are numbers")
