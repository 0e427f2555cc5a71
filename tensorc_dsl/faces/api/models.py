"""Models in Python: imported from files of other systems, loaded from `.tsched`, and called on arrays. A
call of a model is one call of native code, in one arena, on weights that are packed once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorc_dsl.backend.protocol import CompileError, Form, KernelLibrary, LoadedCalls, ModelCalls, require_models
from tensorc_dsl.base import units
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.outputs import Output
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.models import Call, ModelPlan, shape_of
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.faces.api.kernel import Kernel, chosen_soon, failed
from tensorc_dsl.faces.api.model_groupings import recorded_draws
from tensorc_dsl.faces.api.schedules import sample, schedules_of
from tensorc_dsl.faces.api.tasks import StrPath, TaskFile
from tensorc_dsl.faces.packages import Disk, Resolver
from tensorc_dsl.faces.report.files import read_source
from tensorc_dsl.graph.arena import Arrangement, PlacedCall, arranged
from tensorc_dsl.graph.graph import NUMPY, Array, Tensor
from tensorc_dsl.graph.grouping import Grouped, graph_space, grouped, likeliest
from tensorc_dsl.graph.weights import mapped_weights
from tensorc_dsl.interp.space import Space, frozen_space
from tensorc_dsl.ir.arrays import as_stored, narrow
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Param
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Decider, Trace, preferring
from tensorc_dsl.syntax.names import near
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.search.team import Team

if TYPE_CHECKING:
    from tensorc_dsl.graph.calls import Imported


class Runtime:
    """A plan with a kernel for each of its tasks, and its weights, ready to run.

    `steps` names the task of each step of `arrangement`, "" for a copy of an output. Weights are packed here, and runs do not
    read them again. Runs may be called from several threads at once: the second one takes memory of its own.
    """

    def __init__(
        self, plan: ModelPlan, kernels: Mapping[str, Kernel], weights: Mapping[str, Array], name: str = "model"
    ) -> None:
        """Raises OutOfMemory, and TschedError (E0910) if models do not run on the target of the kernels."""
        self.inputs, self.outputs = plan.inputs, plan.outputs
        calls = model_calls(plan, name)
        self.arrangement = calls.plan
        self.steps = tuple(s.task if isinstance(s, PlacedCall) else "" for s in self.arrangement.steps)
        self._plan = plan
        self._weights = weights
        kind = next((k.target.kind for k in kernels.values()), Target().kind)
        loaded = {task: k.loaded for task, k in kernels.items()}
        self.calls: LoadedCalls = require_models(kind, name).load_calls(calls, loaded, weights)

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """The output, or a tuple of several, for arrays in order or by name: the inputs, or these and the outputs.

        Arrays are taken as `Kernel` takes them; inputs of NumPy that are not dense or aligned are copied. Raises ValueError.
        """
        count = len(self.inputs)
        given = (*map(_dense, arrays[:count]), *arrays[count:])
        return self.calls(*given, **{n: _dense(a) if n in self.inputs else a for n, a in named.items()})

    def run(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The outputs by name, in the arrays `outputs` where these are given, all or none. Raises ValueError."""
        made = self(*(inputs[n] for n in self.inputs), **(outputs or {}))
        return dict(zip(self.outputs, made if len(self.outputs) > 1 else (made,), strict=True))

    def step_times(self, inputs: Mapping[str, Any], repeats: int = 1) -> list[list[float]]:
        """Seconds of each step, in the order of a run, of `repeats` runs in a row: each step as the one before leaves it."""
        return self.calls.step_times(self._ordered(inputs), repeats)

    def arguments_of(self, inputs: Mapping[str, Any], step: int) -> tuple[Array, ...]:
        """The inputs of the call that is step `step`, in the order of its program, after a run of the steps before it."""
        call = self.arrangement.steps[step]
        assert isinstance(call, PlacedCall)
        found = self.calls.arguments_of(self._ordered(inputs), step)
        return tuple(
            self._weights[place.name].reshape(shape_of(b)) if a is None else a
            for a, place, b in zip(found, call.arguments, self._plan.programs[call.task].inputs, strict=True)
        )

    def _ordered(self, inputs: Mapping[str, Any]) -> Sequence[Any]:
        return [_dense(inputs[n]) for n in self.inputs]


def _dense(a: Any) -> Any:
    """An array of NumPy that is C-contiguous and aligned, or whatever else it is."""
    wrong = type(a) is np.ndarray and not (a.flags.c_contiguous and a.flags.aligned)
    return np.array(a, order="C") if wrong else a


def model_calls(plan: ModelPlan, name: str) -> ModelCalls:
    """The model of a plan as a function of arrays."""
    inputs, outputs = (
        tuple(Param.of(plan.values[n], output=output) for n in names)
        for names, output in ((plan.inputs, False), (plan.outputs, True))
    )
    return ModelCalls(name, inputs, outputs, arranged(plan))


@problem("E0905", "`{file}` has no model `{name}`")
def NO_MODEL(*, file: str, name: str) -> None: ...
@problem("E0905", "`{file}` has {count} models; say which one", help="they are {names}")
def WHICH_MODEL(*, file: str, count: int, names: str) -> None: ...
@problem("E0905", "there is no model in `{file}`", help="`tensorc-dsl import model.onnx` makes a file with one")
def WITHOUT_MODELS(*, file: str) -> None: ...
@problem(
    "E0947",
    "`{path}` is not as an import wrote it, and would be replaced",
    help="write beside it, `--output OTHER.tsched`, or replace it, `--force`",
)
def EDITED(*, path: str) -> None: ...


Progress = Callable[[int, int], None]
"""Told how many steps of how many are done."""

SMALL = 0.05
"""The share of a run, by a model of the machine, that the tasks together may take whose draws are taken as they come: to look
for better ones takes a second each, and a network has dozens of small tasks."""

FEW = 2
"""So many tasks are chosen for in this process: to start others takes as long as they would save."""


class LoadedModel:
    """A model of a file. Call it with its inputs to get its outputs.

    `inputs` and `outputs` are their names, `tasks` its distinct calls, each a task, joined by the file's space for graphs.
    Kernels are compiled at the first call.
    """

    def __init__(
        self,
        name: str,
        file: CheckedFile,
        made: Grouped,
        tasks: TaskFile,
        weights: Mapping[str, Array],
        records: Path | None = None,
        decisions: Mapping[str, Decision] | None = None,
    ) -> None:
        """`made` is the model of the `file`, joined; `tasks` are those of the file on the machine."""
        self.name = name
        self.weights = weights
        self.records = records
        """The database of the schedules; None is the user's."""
        self.decisions = decisions or {}
        """The draws of the rules that were given."""
        self._file = file
        self._outer = tasks
        self._given: Mapping[str, Trace] = {}
        self._making = threading.Lock()
        self._runtime: Runtime | None = None
        self._schedules: Mapping[str, Trace] | None = None
        self.recorded: frozenset[str] = frozenset()
        """The tasks whose schedules in `schedules` are recorded."""
        self.inputs = made.plan.inputs
        self.outputs = made.plan.outputs
        self._join(made)

    def _join(self, made: Grouped) -> None:
        file = self._file
        self.grouped = made
        """The calls as they are joined, with the computes that groups became."""
        self.plan = made.plan
        self.trace = made.trace
        """What the rules of the file's space for graphs did, with their draws; None without such a space."""
        inner = replace(
            file,
            computes={**file.computes, **made.computes},
            library=made.library,
            tasks=dict(made.plan.tasks),
            elaborated=dict(made.plan.programs),
        )
        self.tasks = self._outer.of(inner)

    @property
    def space(self) -> Space | None:
        """The space for graphs of the file over the graph of the model; None if there is none."""
        return graph_space(self._file, self.name, self.tasks.native)

    def regrouped(self, decide: Decider) -> LoadedModel:
        """The model with its calls joined as its rules do if draws are decided so; those in `decisions` are as they are.

        Raises TschedError if the rules are refused then.
        """
        made = grouped(self._file, self.name, self.tasks.native, self.decisions, decide)
        return LoadedModel(self.name, self._file, made, self._outer, self.weights, self.records, self.decisions)

    def adopt(self, other: LoadedModel) -> None:
        """Have the next call run the calls of the model as another loading of it joins them, with recorded schedules."""
        self._adopt(other.grouped)

    def _adopt(self, made: Grouped) -> None:
        self._join(made)
        self._given = {}
        self.refresh()

    def prepare(self, progress: Progress = lambda _done, _all: None) -> None:
        """Choose the schedules, compile all kernels, and bind the weights. `progress` is told how much of it is done.

        Raises TschedError.
        """
        _ = self._made(progress)

    @property
    def arrangement(self) -> Arrangement:
        """The steps of a run, with a place in memory for each value."""
        return arranged(self.plan)

    @property
    def runtime(self) -> Runtime:
        """What runs the model: its kernels and packed weights, made as by `prepare`."""
        return self._made(lambda _done, _all: None)

    def _made(self, progress: Progress) -> Runtime:
        with self._making:
            if self._runtime is None:
                count = len(self.tasks)
                schedules = self._chosen(lambda done, _: progress(done, 2 * count))
                kernels: dict[str, Kernel] = {}
                for n, (name, trace) in enumerate(schedules.items()):
                    progress(count + n, 2 * count)
                    kernels[name] = self.tasks[name].replay(trace)
                progress(2 * count, 2 * count)
                self._runtime = Runtime(self.plan, kernels, self.weights, self.name)
            return self._runtime

    def schedules(self, progress: Progress = lambda _done, _all: None) -> Mapping[str, Trace]:
        """The schedule of each task: the fastest recorded one, else the draw with seed 0, or the first choice
        (`Task.first_choice`) where a model of the machine says that the draw takes much of a run.

        Raises TschedError.
        """
        with self._making:
            return self._chosen(progress)

    def _chosen(self, progress: Progress) -> Mapping[str, Trace]:
        if self._schedules is None:
            wanted = (name for name in self.tasks if name not in self._given)
            found = {name: self.tasks[name].recorded(self.records) for name in wanted}
            known = {name: trace for name, trace in found.items() if trace is not None} | dict(self._given)
            self.recorded = frozenset(known)
            self._schedules = self.schedules_beside(known, self.records, progress)
        return self._schedules

    def schedules_beside(
        self, known: Mapping[str, Trace], records: Path | None, progress: Progress = lambda _done, _all: None
    ) -> dict[str, Trace]:
        """The schedule of each task where only these are known, as in `schedules`; the database `records` teaches the others.

        Raises TschedError.
        """
        schedules = {name: known.get(name) or task.sample(0) for name, task in self.tasks.items()}
        calls = Counter(step.task for step in self.plan.steps if isinstance(step, Call))
        expected = {name: calls[name] * (self.tasks[name].modelled(t) or 0.0) for name, t in schedules.items()}
        waiting = set(self.tasks) - set(known)
        with Team(None if len(waiting) > FEW else 0) as team:
            while (left := sum(expected[n] for n in waiting)) == inf or left > SMALL * sum(expected.values()):
                name = max(sorted(waiting), key=expected.__getitem__)
                progress(len(self.tasks) - len(waiting), len(self.tasks))
                waiting.remove(name)
                trace = schedules[name] = chosen_soon(self.tasks[name], records, team)
                expected[name] = calls[name] * (self.tasks[name].modelled(trace) or 0.0)
        return schedules

    def kernel(self, task: str) -> Kernel:
        """The kernel of a task with its schedule in `schedules`. Raises TschedError."""
        return self.tasks[task].replay(self.schedules()[task])

    def use(self, path: StrPath) -> None:
        """Have the next call take the schedules in a file, as `tune` writes it: each under the name of its task, and one for
        the model, which joins its calls. Without the latter they are joined by its rules, with their likeliest draws.

        Raises TschedError if the file is wrong or a schedule does not fit its task, and UnknownTask for another name.
        """
        source = read_source(path)
        joins = schedules_of(source, self._file, lambda s: s.compute == self.name).schedules
        own = replace(self._file, schedules=joins) if joins else self._file
        self._adopt(grouped(own, self.name, self.tasks.native, self.decisions))
        file = schedules_of(source, self.tasks.checked, lambda s: s.compute != self.name)
        self._given = {
            name: sample(frozen_space(replace(file, schedules={name: item}), self.tasks[name].space), name, 0)
            for name, item in file.schedules.items()
        }

    def refresh(self) -> None:
        """Have the next call compile the kernels again, with the schedules that are recorded by then."""
        self._runtime = self._schedules = None

    def random_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Inputs by name: floats from a normal distribution, integers 0 and 1, which are valid as indices of most models."""
        rng = np.random.default_rng(seed)
        out: dict[str, Array] = {}
        for name in self.inputs:
            wanted = _type(self.plan, name)
            drawn = rng.standard_normal(wanted.shape) if wanted.is_float else rng.integers(0, 2, wanted.shape)
            out[name] = narrow(np.asarray(drawn), self.plan.values[name].dtype)
        return out

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """The output, or a tuple of several.

        Inputs are given in the order of the model or by name; outputs may be given by name, too, or all as `out`, an array
        or a sequence of several. Arrays are NumPy's or support DLPack on the CPU, and new outputs belong to the library of
        all inputs, or to NumPy. Safe to call from several threads at once. Raises ValueError if a name, a dtype or a shape
        is not the model's, or an output shares memory with another array; TschedError if a kernel cannot be made.
        """
        names = (*self.inputs, *self.outputs)
        if "out" in named and "out" not in names:
            out = named.pop("out")
            arrays_out = (out,) if len(self.outputs) == 1 else tuple(out)
            if len(arrays_out) != len(self.outputs):
                raise ValueError(
                    f"`out` has {units.counted(len(arrays_out), 'array')}; the outputs are {', '.join(self.outputs)}"
                )
            named |= dict(zip(self.outputs, arrays_out, strict=True))
        given = {*self.inputs[: len(arrays)], *named}
        if len(arrays) > len(names) or not {*self.inputs} <= given <= {*names}:
            found = ", ".join((*self.inputs[: len(arrays)], *named)) or "none"
            raise ValueError(f"the inputs of `{self.name}` are {', '.join(self.inputs)}; given are {found}")
        return (self._runtime or self.runtime)(*arrays, **named)

    def outputs_of(self, /, *arrays: Any, **named: Any) -> dict[str, Any]:
        """The outputs by name. Inputs and errors are as those of a call."""
        made = self(*arrays, **named)
        return dict(zip(self.outputs, made if len(self.outputs) > 1 else (made,), strict=True))

    def checked_inputs(self, /, *arrays: Any, **named: Any) -> dict[str, Array]:
        """The inputs of a call by name, dense. Raises ValueError as a call does."""
        given = dict(zip(self.inputs, arrays, strict=False))
        wrong = [n for n in named if n not in self.inputs or n in given]
        given |= named
        missing = [n for n in self.inputs if n not in given]
        if wrong or missing or len(arrays) > len(self.inputs):
            raise ValueError(f"the inputs of `{self.name}` are {', '.join(self.inputs)}; given are {', '.join(given)}")
        out: dict[str, Array] = {}
        for name in self.inputs:
            wanted = _type(self.plan, name)
            array = np.ascontiguousarray(given[name]).reshape(np.shape(given[name]))
            array = as_stored(array, self.plan.values[name].dtype)
            if array.shape != wanted.shape or array.dtype != NUMPY[wanted.dtype]:
                raise ValueError(f"`{name}` is {wanted}; given is {array.dtype}{list(array.shape)}")
            out[name] = array
        return out

    def library(self, seed: int | None = None) -> KernelLibrary:
        """The model as a library for C, with the schedules that `prepare` takes; with a seed, those that are not recorded are
        drawn with it.

        Its forms are `model_forms`. Raises TschedError (E0908, E0910, E0912) if it cannot be made, and OutOfMemory.
        """
        target, schedules = self.target, dict(self.schedules())
        if seed is not None:
            schedules |= {name: self.tasks[name].sample(seed) for name in self.tasks if name not in self.recorded}
        kernels = {name: self.tasks[name].lower(trace) for name, trace in schedules.items()}
        how = "chosen by a model of the machine" if seed is None else f"drawn with seed {seed}"
        others = f", {len(kernels) - len(self.recorded)} are {how}" if len(self.recorded) < len(kernels) else ""
        origin = (
            f"Of the schedules of its {units.counted(len(kernels), 'task')}, {len(self.recorded)} are recorded{others}."
        )
        backend, calls = require_models(target.kind, self.name), model_calls(self.plan, self.name)
        try:
            return backend.model_library(calls, kernels, self.weights, target, target.cores, origin)
        except CompileError as e:
            raise failed("does not compile", str(e)) from e

    @property
    def keeps(self) -> str:
        """What the schedules of all tasks keep, for people; empty if nothing."""
        return next((task.keeps.words for task in self.tasks.values() if task.keeps is not None), "")

    @property
    def target(self) -> Target:
        """The machine that the model is for."""
        return next((task.target for task in self.tasks.values()), self.tasks.native)

    @property
    def model_forms(self) -> Mapping[str, Form]:
        """The kinds of files that `library` makes. Raises TschedError (E0910) if models do not run on the target."""
        return require_models(self.target.kind, self.name).model_forms

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{n}: {_type(self.plan, n)}" for n in some) for some in (self.inputs, self.outputs)
        )
        return f"LoadedModel({self.name}({inputs}) -> {outputs}, {len(self.plan.steps)} steps, {len(self.tasks)} tasks)"


def _type(plan: ModelPlan, name: str) -> Tensor:
    b = plan.values[name]
    return Tensor(b.dtype.name, shape_of(b))


def load_model(
    path: StrPath,
    name: str | None = None,
    *,
    threads: int | None = None,
    records: StrPath | None = None,
    schedules: StrPath | None = None,
    decisions: Mapping[str, Decision] | None = None,
    same_bits: bool = False,
    native: Target | None = None,
) -> LoadedModel:
    """The model of a `.tsched` file; `name` is needed if the file has several. Kernels use `threads` threads, and the
    schedules in the file `schedules`, as `tune` writes it; else the fastest in the database `records`, by default the one in
    the user's data folder. With `same_bits` all schedules are proved to give the bits of their computes' own order, so the
    bits of the outputs are the same, however the model is tuned.

    `decisions` are values of draws of the rules that join its calls, those of `model.trace` for instance; other draws have
    their likeliest value. Without any, draws are as `tune_model` chose them on this machine. Its weights are mapped, and
    compared with their digest. `native` stands for this machine where kernels run elsewhere, as `target` of a pool does: such
    a model is tuned, and not called. Raises TschedError with all errors in the file, E0905 if it has no such model, E0556 and
    E0506 if a decision is none of its rules, and E0943 if its weights cannot be used.
    """
    files = Disk()
    checked = load_source(files.read(path), Resolver(path, (), files))
    where = None if records is None else Path(records)
    model = model_of(checked, name, threads, where, decisions=decisions, same_bits=same_bits, native=native)
    if schedules is not None:
        model.use(schedules)
    return model


def model_named(checked: CheckedFile, name: str | None) -> str:
    """The name of the model that is meant: without a name the only one of the file. Raises TschedError (E0905)."""
    source, known = checked.source.name, list(checked.models)
    if not known:
        raise TschedError(WITHOUT_MODELS(None, file=source))
    if name is None and len(known) > 1:
        raise TschedError(WHICH_MODEL(None, file=source, count=len(known), names=", ".join(known)))
    chosen = known[0] if name is None else name
    if chosen not in checked.models:
        raise TschedError(NO_MODEL(None, file=source, name=chosen, notes=near(chosen, known)))
    return str(chosen)


def model_of(
    checked: CheckedFile,
    name: str | None,
    threads: int | None = None,
    records: Path | None = None,
    target: str | None = None,
    mcpu: str | None = None,
    decisions: Mapping[str, Decision] | None = None,
    same_bits: bool = False,
    native: Target | None = None,
) -> LoadedModel:
    """As `load_model`, for a checked file; `target` and `mcpu` are those of `load`."""
    chosen, source = model_named(checked, name), checked.source.name
    item, native = checked.models[chosen], native or host_target(threads)
    known: Mapping[str, Decision] = {} if decisions else recorded_draws(checked, chosen, native, records)
    made = grouped(checked, chosen, native, decisions, preferring(known, likeliest))
    weights: dict[str, Array] = {}
    if item.weights is not None:
        wanted = {n: _type(made.plan, n) for n in made.plan.weights}
        weights = mapped_weights(Path(source).parent / item.weights.path, item.weights.sha256, wanted)
    passing = sum(w.nbytes for w in weights.values())
    tasks = TaskFile(checked, native, target, mcpu, passing=passing, same_bits=same_bits)
    return LoadedModel(chosen, checked, made, tasks, weights, records, decisions)


def import_onnx(
    path: StrPath,
    output: StrPath | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, int | float] | None = None,
    force: bool = False,
) -> Path:
    """Write an ONNX file as a `.tsched` file with a model, by default beside it, and its weights as a file of safetensors.

    `shapes` fixes the sizes of inputs, and `values` the content of scalar ones. Returns the path of the `.tsched` file. Needs
    the extra `onnx`. Files that are there are replaced if an import wrote them and nobody changed them, or with `force`.
    Raises TschedError (E0940, E0941, E0942, E0947, E0903) and then writes nothing.
    """
    from tensorc_dsl.graph.importing import import_graph
    from tensorc_dsl.graph.onnx_file import read_onnx

    source = Path(path)
    target = Path(output) if output is not None else source.with_suffix(".tsched")
    graph = read_onnx(source)
    _require_unchanged(target, force)
    imported = import_graph(graph, shapes or {}, values or {})
    return _write(imported, target, source.name, typed=output is not None, force=force)


def from_torch(module: Any, example: Any, output: StrPath, *, force: bool = False) -> Path:
    """Write a module of PyTorch as a `.tsched` file with a model, and its weights as a file of safetensors beside it.

    The module is in evaluation mode. `example` is a tensor, a tuple of them, or a dict of inputs by name: the model is for
    inputs of these types and shapes. Returns the path of the `.tsched` file, as `import_onnx` does, and replaces files as it
    does. Needs the extra `torch`. Raises TschedError (E0940, E0941, E0947, E0903) and then writes nothing.
    """
    from tensorc_dsl.graph.importing import import_graph
    from tensorc_dsl.graph.torch_export import read_torch

    target = Path(output)
    _require_unchanged(target, force)
    imported = import_graph(read_torch(module, example), {}, {})
    return _write(imported, target, type(module).__name__, typed=True, force=force)


def _require_unchanged(target: Path, force: bool) -> None:
    """Raise TschedError (E0947) if the target of an import is there, and is not what an import wrote."""
    from tensorc_dsl.graph.writing import is_imported

    if not force and target.is_file() and not is_imported(target):
        raise TschedError(EDITED(None, path=str(target)))


def _write(imported: Imported, target: Path, origin: str, *, typed: bool, force: bool) -> Path:
    """Write the files of an imported model; `typed`: somebody has named the target. Raises TschedError (E0947, E0903)."""
    from tensorc_dsl.graph.weights import are_imported, digest_of, weights_parts
    from tensorc_dsl.graph.writing import DIGEST, stamped, written
    from tensorc_dsl.syntax.fmt import format_text

    beside = target.with_suffix(".safetensors")
    text, tensors = written(imported, target.stem, origin, beside.name)
    if tensors:
        text = text.replace(DIGEST, digest_of(weights_parts(tensors)))
    text = stamped(format_text(Source.of(text.encode(), target.name)))
    if tensors and not force and beside.is_file() and not are_imported(beside):
        raise TschedError(EDITED(None, path=str(beside)))
    outputs = [Output(target, typed=typed), *([Output(beside)] if tensors else [])]
    for o in outputs:
        o.check()
    for o, content in zip(reversed(outputs), ([weights_parts(tensors), text] if tensors else [text]), strict=True):
        o.write(content)
    return target
