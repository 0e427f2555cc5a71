"""The calls of a model as a table, which native code runs like one kernel; and the weights as its kernels read them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensorc_dsl.backend.llvm.runtime.arguments import Described, shape_for
from tensorc_dsl.backend.llvm.runtime.kernel import Arguments, BoundKernel, Code, Constants, Entry, NativeKernel
from tensorc_dsl.backend.llvm.runtime.native import runtime
from tensorc_dsl.backend.memory import ALIGNMENT, aligned_empty
from tensorc_dsl.backend.protocol import ModelCalls
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.arena import Arrangement, Copy, Place, PlacedCall
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.dtypes import I64
from tensorc_dsl.ir.expr import index
from tensorc_dsl.lower.flat import Param, format_shape

# The table, for any process: what is called, on which arguments, in how much memory.


@frozen
class TaskFacts:
    """What a table needs of a kernel: its parameters, the constant inputs that calls read, and the bytes of its prepared
    memory and of scratch memory for a call and for the preparation."""

    params: tuple[Param, ...]
    kept: frozenset[str]
    scratch: int
    prepared: int = 0
    preparing: int = 0


@frozen
class Slot:
    """An argument of a call: a place behind the array at a position among the arguments of a run, or behind the start of the
    workspace, at position 0."""

    position: int
    offset: int


@frozen
class TableCall:
    """A call of a task's kernel, or of its preparation; of no task, a copy. `step` is the place of the step in the plan."""

    step: int
    task: str
    prepares: bool
    slots: tuple[Slot, ...]


@frozen
class PreparedBlock:
    """Where the preparation of a task writes, for constant inputs that are weights: each by its position among the
    parameters."""

    task: str
    weights: tuple[tuple[int, Place], ...]
    offset: int


HEAD = ALIGNMENT
"""The bytes before the packed weights, for what marks them in a file."""


@frozen
class Table:
    """The calls of a model. The arguments of a run are the table itself, the arrays `given`, and the packed weights.

    The packed weights are the blocks that kernels prepare, once for equal weights, and copies of those weights that calls
    read as they are. The workspace has the scratch memory that all calls share, the arena, and the arguments of a call.
    """

    given: tuple[str, ...]
    calls: tuple[TableCall, ...]
    scratch: int
    arena: int
    blocks: tuple[PreparedBlock, ...]
    copies: Mapping[str, int]
    packed_bytes: int

    @property
    def arguments_at(self) -> int:
        """Where the arguments of a call are written in the workspace."""
        return self.scratch + self.arena

    @property
    def workspace_bytes(self) -> int:
        most = max((len(c.slots) for c in self.calls), default=0)
        return lines(self.arguments_at + 8 * most)

    def preparing_bytes(self, tasks: Mapping[str, TaskFacts]) -> int:
        """The scratch memory for the preparations of all blocks."""
        return max((tasks[b.task].preparing for b in self.blocks), default=0)


def lines(size: int) -> int:
    """The bytes of whole lines that hold so many."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def call_table(
    plan: Arrangement, tasks: Mapping[str, TaskFacts], given: Sequence[str], weights: Mapping[str, int]
) -> Table:
    """The table of a model with the inputs and outputs `given`, in that order, and weights of so many bytes."""
    return _Tabled(plan, tasks, {n: k + 1 for k, n in enumerate(given)}, weights).table()


@dataclass(slots=True)
class _Tabled:
    plan: Arrangement
    tasks: Mapping[str, TaskFacts]
    positions: Mapping[str, int]
    weights: Mapping[str, int]
    size: int = HEAD
    blocks: dict[tuple[str, tuple[tuple[int, Place], ...]], PreparedBlock] = field(
        default_factory=dict[tuple[str, tuple[tuple[int, Place], ...]], PreparedBlock]
    )
    copies: dict[str, int] = field(default_factory=dict[str, int])

    def table(self) -> Table:
        placed = [s for s in self.plan.steps if isinstance(s, PlacedCall)]
        scratch = max((self._scratch(s) for s in placed), default=0)
        calls = tuple(c for n, s in enumerate(self.plan.steps) for c in self._calls(n, s, scratch))
        blocks = tuple(self.blocks.values())
        return Table(tuple(self.positions), calls, scratch, self.plan.size, blocks, self.copies, self.size)

    def _bound(self, s: PlacedCall) -> tuple[tuple[int, Place], ...] | None:
        """The constant inputs of a call, if all of them are weights, so that they are prepared once."""
        constants = tuple(
            (k, place)
            for k, (p, place) in enumerate(zip(self.tasks[s.task].params, s.arguments, strict=False))
            if p.constant
        )
        return constants if all(place.base == "weight" for _, place in constants) else None

    def _scratch(self, s: PlacedCall) -> int:
        """The scratch memory of a call, and behind it what it prepares itself."""
        facts = self.tasks[s.task]
        if self._bound(s) is not None:
            return lines(facts.scratch)
        return self._prepared_at(facts) + lines(facts.prepared)

    @staticmethod
    def _prepared_at(facts: TaskFacts) -> int:
        return lines(max(facts.scratch, facts.preparing))

    @property
    def _packed(self) -> int:
        """The position of the packed weights among the arguments of a run."""
        return len(self.positions) + 1

    def _calls(self, n: int, s: PlacedCall | Copy, scratch: int) -> Iterator[TableCall]:
        if isinstance(s, Copy):
            source, target = self._slot(s.source, scratch), self._slot(s.target, scratch)
            yield TableCall(n, "", False, (target, source, Slot(source.position, source.offset + s.size)))
            return
        facts, bound = self.tasks[s.task], self._bound(s)
        slots: list[Slot] = []
        for p, place in zip(facts.params, (*s.arguments, *s.results), strict=True):
            unread = p.constant and bound is not None and p.name not in facts.kept
            slots.append(Slot(self._packed, 0) if unread else self._slot(place, scratch))
        if bound is None:
            slots.append(Slot(0, self._prepared_at(facts)))
            yield TableCall(n, s.task, True, tuple(slots))
        elif bound:
            slots.append(Slot(self._packed, self._block(s.task, bound)))
        yield TableCall(n, s.task, False, tuple(slots))

    def _slot(self, place: Place, scratch: int) -> Slot:
        match place.base:
            case "arena":
                return Slot(0, scratch + place.offset)
            case "weight":
                if place.name not in self.copies:
                    self.copies[place.name] = self._take(self.weights[place.name])
                return Slot(self._packed, self.copies[place.name] + place.offset)
            case "input" | "output":
                return Slot(self.positions[place.name], place.offset)

    def _block(self, task: str, bound: tuple[tuple[int, Place], ...]) -> int:
        key = task, bound
        if key not in self.blocks:
            self.blocks[key] = PreparedBlock(task, bound, self._take(self.tasks[task].prepared))
        return self.blocks[key].offset

    def _take(self, size: int) -> int:
        """The offset of new memory behind the packed weights."""
        at = self.size
        self.size += lines(size)
        return at


def packed_weights(
    table: Table, tasks: Mapping[str, TaskFacts], codes: Mapping[str, Code], weights: Mapping[str, Array]
) -> Array:
    """The packed weights of a model, behind a head of zeros, by the preparations of its kernels.

    Raises OutOfMemory.
    """
    what = "the weights of the model, packed"
    out = aligned_empty((table.packed_bytes,), np.dtype(np.uint8), what)
    out[:HEAD] = 0
    scratch = aligned_empty((table.preparing_bytes(tasks),), np.dtype(np.uint8), what)
    for name, at in table.copies.items():
        a = weights[name]
        out[at : at + a.nbytes] = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    for block in table.blocks:
        facts = tasks[block.task]
        arguments = (ctypes.c_void_p * (len(facts.params) + 1))()
        held = [np.ascontiguousarray(weights[place.name]) for _, place in block.weights]
        for (k, place), a in zip(block.weights, held, strict=True):
            arguments[k] = a.ctypes.data + place.offset
        arguments[len(facts.params)] = out.ctypes.data + block.offset
        preparation = codes[block.task].preparation
        assert preparation is not None
        preparation.run(arguments, scratch.ctypes.data)
    return out


# The table in this process.


_TABLE = Param("the calls", I64, (index(4),), output=False, constant=True)


class CallTable(BoundKernel):
    """A model in this process: its calls as one kernel, whose one constant input is the table. Call it with the inputs, or
    with inputs and outputs; safe to call from several threads at once, each with memory of its own."""

    def __init__(self, model: ModelCalls, kernels: Mapping[str, NativeKernel], weights: Mapping[str, Array]) -> None:
        tasks = {task: _facts(k) for task, k in kernels.items()}
        self.params = (*model.inputs, *model.outputs)
        sizes = {n: a.nbytes for n, a in weights.items()}
        table = self.table = call_table(model.plan, tasks, [p.name for p in self.params], sizes)
        self._kernels = kernels  # their code has to stay
        self._steps = len(model.plan.steps)
        packed = packed_weights(table, tasks, {task: k.code for task, k in kernels.items()}, weights)
        slots = np.array([(s.position, s.offset) for c in table.calls for s in c.slots], np.int64).reshape(-1, 2)
        calls = np.zeros((len(table.calls), 3), np.int64)
        first = 0
        for k, c in enumerate(table.calls):
            calls[k] = self._address(c), first, len(c.slots)
            first += len(c.slots)
        head = np.array((len(table.calls), calls.ctypes.data, slots.ctypes.data, table.arguments_at), np.int64)
        main = Entry.at(runtime().run_calls, lambda _: table.workspace_bytes)
        code = Code(model.name, (_TABLE, *self.params), (), frozenset(), main, None, (head, calls, slots))
        super().__init__(code, Constants({_TABLE.name: Described.of(head)}, {_TABLE.name: head}, packed))

    def _address(self, c: TableCall) -> int:
        if not c.task:
            return runtime().copy
        code = self._kernels[c.task].code
        entry = code.preparation if c.prepares else code.main
        assert entry is not None
        return entry.address

    def step_times(self, arrays: Sequence[object], repeats: int) -> list[list[float]]:
        """Seconds of each step of the plan, in the order of a run; of `repeats` runs in a row on the same arrays."""
        calls = self.table.calls
        out = np.zeros((repeats, len(calls)), np.int64)

        def run(arguments: Arguments, workspace: int) -> None:
            for row in out:
                self._time_calls(arguments, workspace, len(calls), row.ctypes.data)

        self._within(arrays, run)
        found = [[0.0] * self._steps for _ in range(repeats)]
        for times, row in zip(found, out.tolist(), strict=True):
            for c, ns in zip(calls, row, strict=True):
                times[c.step] += ns * 1e-9
        return found

    def arguments_of(self, arrays: Sequence[object], step: int) -> tuple[Array | None, ...]:
        """Copies of the inputs of a call, the step of that number, as the steps before it leave them; None for weights."""
        number, call = next((k, c) for k, c in enumerate(self.table.calls) if c.step == step)
        inputs = [p for p in self._kernels[call.task].params if p.given]
        made = [aligned_empty(shape_for(p, {}), stored_dtype(p.dtype)) for p in inputs]
        weights = len(self.params) + 1
        times = (ctypes.c_int64 * max(number, 1))()

        def run(arguments: Arguments, workspace: int) -> None:
            self._time_calls(arguments, workspace, number, ctypes.addressof(times))
            for a, s in zip(made, call.slots, strict=False):
                if s.position != weights:
                    base = workspace if s.position == 0 else arguments[s.position] or 0
                    ctypes.memmove(a.ctypes.data, base + s.offset, a.nbytes)

        self._within(arrays, run)
        return tuple(None if s.position == weights else a for a, s in zip(made, call.slots, strict=False))

    def _time_calls(self, arguments: Arguments, workspace: int, count: int, out: int) -> None:
        timer = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(
            runtime().time_calls
        )
        timer(arguments, workspace, count, out)

    def _within(self, arrays: Sequence[object], run: Callable[[Arguments, int], None]) -> None:
        """Run on the arguments for some arrays, in memory for one run."""
        bound, arguments = self._bind(tuple(arrays))
        workspace, locked = self._prepared(arguments)
        try:
            run(arguments, workspace.ctypes.data)
        finally:
            del bound  # kept alive until here, since the arguments are addresses
            if locked:
                self._memory_lock.release()

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p.dtype}{format_shape(p.shape)}" for p in self.params)
        return f"CallTable({params}; {len(self.table.calls)} calls)"


def _facts(k: NativeKernel) -> TaskFacts:
    arguments = k.code.arguments()
    scratch = k.code.main.workspace_bytes(arguments)
    if (preparation := k.code.preparation) is None:
        return TaskFacts(k.params, k.code.kept, scratch)
    prepared, preparing = preparation.prepared_bytes(arguments), preparation.workspace_bytes(arguments)
    return TaskFacts(k.params, k.code.kept, scratch, prepared, preparing)
