"""Times of models: each call of a run, which groups take how long and how near they are to the roof; and the model beside the
ONNX file that it was imported from, as another runtime runs it: results, and times by turns.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.check.models import Call
from tensorc_dsl.faces.api.kernel import Kernel
from tensorc_dsl.faces.api.models import LoadedModel, Runtime
from tensorc_dsl.faces.api.tasks import StrPath, Task
from tensorc_dsl.graph.graph import Array
from tensorc_dsl.graph.writing import word_of
from tensorc_dsl.tuning.machine.roof import Rates, Roof, roof_of
from tensorc_dsl.tuning.measure.in_context import by_turns


class ModelCalls:
    """The calls of a model with one kernel for each task, on fixed inputs. `tasks` has the task of each call, in order."""

    def __init__(self, model: LoadedModel, kernels: Mapping[str, Kernel], inputs: Mapping[str, Array]) -> None:
        """Raises ValueError for wrong inputs, and TschedError (E0933) if memory is missing."""
        self._inputs = model.checked_inputs(**inputs)
        self._runtime = Runtime(model.plan, kernels, model.weights, model.name)
        self.tasks = tuple(task for task in self._runtime.steps if task)

    def __call__(self) -> dict[str, Array]:
        """Run the model. Returns its outputs."""
        return self._runtime.run(self._inputs)

    def times(self) -> list[float]:
        """Run the model, and return the seconds of each call; copies of outputs are none."""
        (times,) = self._runtime.step_times(self._inputs)
        return [seconds for task, seconds in zip(self._runtime.steps, times, strict=True) if task]


# The profile of a model.


@frozen
class ModelGroup:
    """A task of a model, called so many times. `seconds` are of all these calls in a run; its `roof` is that of one call."""

    task: str
    calls: int
    seconds: float
    roof: Roof

    @property
    def of_roof(self) -> float | None:
        """The share of the roof; None if that is unknown."""
        return self.roof.share(self.seconds / self.calls) if self.seconds else None


@frozen
class TimedCall:
    """One call of one run, with when it began and how long it took, in seconds from the beginning of the run."""

    task: str
    results: tuple[str, ...]
    begin: float
    seconds: float


@frozen
class ModelProfile:
    """The times of a model's groups: medians of `runs` runs, of which `calls` has the median one, call by call.

    `seconds` is the median time of a run. `groups` are sorted by their time, the longest first.
    """

    model: str
    seconds: float
    runs: int
    groups: tuple[ModelGroup, ...]
    calls: tuple[TimedCall, ...]

    def trace(self) -> dict[str, Any]:
        """The median run in the format of Chrome's traces, which Perfetto shows: an event of the model, and in it one of each
        call, with times in microseconds.

        The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
        """
        roofs = {g.task: g.roof for g in self.groups}

        def event(name: str, begin: float, seconds: float, facts: dict[str, Any]) -> dict[str, Any]:
            place = {"ph": "X", "cat": "model", "pid": 1, "tid": 1}
            return place | {"name": name, "ts": 1e6 * begin, "dur": 1e6 * seconds, "args": facts}

        events = [event(self.model, 0.0, self.seconds, {"calls": len(self.calls)})]
        for c in self.calls:
            work = {"operations": roofs[c.task].operations, "bytes": roofs[c.task].bytes_}
            events.append(event(c.task, c.begin, c.seconds, {"results": ", ".join(c.results)} | work))
        about = {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": f"tensorc-dsl: {self.model}"}}
        return {"traceEvents": [about, *events], "displayTimeUnit": "ns"}


SECONDS, LEAST_RUNS, MOST_RUNS = 2.0, 3, 1000
"""How long a model is run for its profile, and how often at least and at most."""


def profile_model(model: LoadedModel, inputs: Mapping[str, Array] | None = None) -> ModelProfile:
    """How long each group of a model takes, in whole runs one after the other on this machine.

    `inputs` are by default random ones. Kernels have the schedules that they have in calls of the model. Raises ValueError
    for wrong inputs, and TschedError if a kernel cannot be made.
    """
    kernels = {name: model.kernel(name) for name in model.tasks}
    calls = ModelCalls(model, kernels, model.random_inputs() if inputs is None else inputs)
    calls()  # the first call of each kernel also takes memory
    found: list[list[float]] = []
    until = time.perf_counter() + SECONDS
    while len(found) < LEAST_RUNS or (len(found) < MOST_RUNS and time.perf_counter() < until):
        found.append(calls.times())
    found.sort(key=sum)
    middle = found[len(found) // 2]
    counts = Counter(calls.tasks)
    seconds = dict.fromkeys(counts, 0.0)
    for task, times in zip(calls.tasks, zip(*found, strict=True), strict=True):
        seconds[task] += median(times)
    roofs = roofs_of({name: model.tasks[name] for name in counts})
    groups = [ModelGroup(name, n, seconds[name], roofs[name]) for name, n in counts.items()]
    made = [step.results for step in model.plan.steps if isinstance(step, Call)]
    events = [
        TimedCall(task, results, begin, taken)
        for task, results, begin, taken in zip(calls.tasks, made, accumulate(middle, initial=0.0), middle, strict=False)
    ]
    groups.sort(key=lambda g: -g.seconds)
    return ModelProfile(model.name, sum(middle), len(found), tuple(groups), tuple(events))


def roofs_of(tasks: Mapping[str, Task]) -> dict[str, Roof]:
    """The roofs of tasks by their names. What the machine does at most is measured once for all."""
    rates = Rates()
    return {name: roof_of(t.program, t.target, t.threads, rates=rates) for name, t in tasks.items()}


@problem("E0944", "`{runtime}` is not installed", help="`pip install {runtime}`")
def NO_MODEL_RUNTIME(*, runtime: str) -> None: ...
@problem(
    "E0944",
    "{runtime} cannot run `{path}`: {why}",
    help="give the file that the model was imported from, and `--set` alike",
)
def NOT_RUN(*, runtime: str, path: str, why: str) -> None: ...
@problem(
    "E0944",
    "`{path}` has the {what} {found}, and the model {wanted}",
    help="give the file that the model was imported from, and `--set` as for `import`",
)
def OTHER_ENDS(*, path: str, what: str, found: str, wanted: str) -> None: ...


@frozen
class OutputDifference:
    """How far an output is from the other runtime's: at most by `absolute`, at the index `where`, where `made` and `wanted`
    stand. `relative` is that as a share of the largest value. `unlike` elements are a number in one of the two only."""

    output: str
    absolute: float
    relative: float
    where: tuple[int, ...]
    made: float
    wanted: float
    unlike: int


@frozen
class ModelComparison:
    """A model beside another `runtime`, with its version, on as many threads. Times are seconds of calls, by turns."""

    model: str
    runtime: str
    threads: int
    differences: tuple[OutputDifference, ...]
    times: tuple[float, ...]
    their_times: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """How many times as fast as the other runtime the model is, by the medians."""
        return median(self.their_times) / median(self.times)

    @property
    def worst(self) -> float:
        """The largest relative difference; infinite if an element is a number in one of the two only."""
        return max((np.inf if d.unlike else d.relative for d in self.differences), default=0.0)


def quartiles_of(times: tuple[float, ...]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper quartile."""
    low, middle, high = quantiles(times, n=4, method="inclusive")
    return low, middle, high


TURNS_SECONDS = 4.0
"""How long the two are timed."""


def compare_model(
    model: LoadedModel,
    path: StrPath,
    *,
    runtime: str = "onnxruntime",
    inputs: Mapping[str, Any] | None = None,
    values: Mapping[str, int | float] | None = None,
) -> ModelComparison:
    """A model beside the ONNX file at `path`, which the package `runtime` runs: "onnxruntime" or "openvino".

    Both have the same inputs, by default random ones, and as many threads. `values` are those that inputs were fixed to by
    the import. Raises TschedError (E0944) if the package is missing, or the file has other inputs or outputs or cannot be
    run, and ValueError for wrong inputs.
    """
    if not Path(path).is_file():
        raise TschedError(NOT_RUN(None, runtime=runtime, path=str(path), why="there is no such file"))
    given = model.checked_inputs(**(model.random_inputs() if inputs is None else inputs))
    other = _RUNTIMES[runtime](Path(path), model.tasks.native.cores, given, dict(values or {}))
    made = list(model.outputs_of(**given).items())
    wanted = other.call()
    if len(wanted) != len(made) or any(np.shape(w) != a.shape for w, (_, a) in zip(wanted, made, strict=False)):
        shapes = (", ".join(str(list(np.shape(a))) for a in some) for some in (wanted, [a for _, a in made]))
        raise TschedError(OTHER_ENDS(None, path=str(path), what="outputs", found=next(shapes), wanted=next(shapes)))
    differences = tuple(_difference(n, a, np.asarray(w)) for (n, a), w in zip(made, wanted, strict=True))
    ours, theirs = by_turns([partial(model, *given.values()), other.call], TURNS_SECONDS)
    return ModelComparison(model.name, other.name, model.tasks.native.cores, differences, ours, theirs)


def _difference(name: str, made: Array, wanted: Array) -> OutputDifference:
    a, b = made.astype(np.float64), wanted.astype(np.float64)
    if not a.size:
        return OutputDifference(name, 0.0, 0.0, (), 0.0, 0.0, 0)
    unlike = np.isnan(a) != np.isnan(b)
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | np.isnan(a) | np.isnan(b), 0.0, np.abs(a - b))
    apart = np.where(unlike, np.inf, apart)
    place = np.unravel_index(int(np.argmax(apart)), apart.shape)
    numbers = np.abs(b[np.isfinite(b)])
    largest = float(numbers.max()) if numbers.size else 0.0
    absolute = float(apart[place])
    relative = absolute / largest if largest else absolute
    return OutputDifference(
        name, absolute, relative, tuple(map(int, place)), float(a[place]), float(b[place]), int(unlike.sum())
    )


# Other runtimes.


@frozen
class _Other:
    """A runtime by its name and version, and a call with the inputs, which returns the outputs in order."""

    name: str
    call: Callable[[], list[Any]]


def _required(runtime: str) -> Any:
    try:
        return import_module(runtime)
    except ImportError:
        raise TschedError(NO_MODEL_RUNTIME(None, runtime=runtime)) from None


def _fed(path: Path, found: list[str], inputs: Mapping[str, Array], values: Mapping[str, Any]) -> dict[str, Array]:
    """The inputs of the file by name: those that an import has named like it, else in order."""
    rest = [n for n in found if n not in values]
    if len(rest) != len(inputs) or any(n not in found for n in values):
        names = (", ".join(some) or "none" for some in (found, [*inputs, *values]))
        raise TschedError(OTHER_ENDS(None, path=str(path), what="inputs", found=next(names), wanted=next(names)))
    words = [word_of(n) for n in rest]
    if set(words) == set(inputs):
        return {n: inputs[word] for n, word in zip(rest, words, strict=True)}
    return dict(zip(rest, inputs.values(), strict=True))


@contextmanager
def _running(runtime: str, path: Path) -> Generator[None]:
    """A context in which what the runtime raises is an error, with the first line that it says; a lack of memory is none."""
    try:
        yield
    except (TschedError, MemoryError):
        raise
    except Exception as e:  # those of other runtimes have no common class
        why = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise TschedError(NOT_RUN(None, runtime=runtime, path=str(path), why=why)) from e


_DTYPES = {"float": "float32", "double": "float64", "bool": "bool", "float16": "float16"} | {
    name: name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}
"""The types of NumPy by ONNX Runtime's words."""


def _onnxruntime(path: Path, threads: int, inputs: Mapping[str, Array], values: Mapping[str, Any]) -> _Other:
    onnxruntime = _required("onnxruntime")
    name = f"ONNX Runtime {onnxruntime.__version__}"
    with _running(name, path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = _fed(path, [i.name for i in session.get_inputs()], inputs, values)
    for i in session.get_inputs():
        if i.name in values:
            dtype = _DTYPES[i.type.removeprefix("tensor(").removesuffix(")")]
            feed[i.name] = np.full([n if isinstance(n, int) else 1 for n in i.shape], values[i.name], dtype)
    with _running(name, path):
        session.run(None, feed)
    return _Other(name, partial(session.run, None, feed))


def _openvino(path: Path, threads: int, inputs: Mapping[str, Array], values: Mapping[str, Any]) -> _Other:
    openvino = _required("openvino")
    name = f"OpenVINO {openvino.__version__.partition('-')[0]}"
    with _running(name, path):
        core = openvino.Core()
        graph = core.read_model(str(path))
        feed = _fed(path, [i.any_name for i in graph.inputs], inputs, values)
        for i in graph.inputs:
            if i.any_name in values:
                shape = [n.get_length() if n.is_static else 1 for n in i.partial_shape]
                feed[i.any_name] = np.full(shape, values[i.any_name], i.element_type.to_dtype())
        graph.reshape({n: list(a.shape) for n, a in feed.items()})
        hints = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        request = core.compile_model(graph, "CPU", hints).create_infer_request()
        request.infer(feed)

    def call() -> list[Any]:
        found = request.infer(feed, share_inputs=True, share_outputs=True)
        return [found[n] for n in range(len(graph.outputs))]

    return _Other(name, call)


_RUNTIMES = {"onnxruntime": _onnxruntime, "openvino": _openvino}
