"""Measures candidates on a board: programs are built here, run there on inputs that were sent once, and checked here.

The clock of a time limit is on the board and starts with the kernel, not while a program is sent. What a board prints and
writes comes back by the connection of the run, so that a trial is one connection, or none that has to be made anew.
"""

from __future__ import annotations

import signal
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.ir.sizes import Sizes, elements_spanned, strides_of
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.storage import callers_params
from tensorc_dsl.processes.machine import Turns, usable_cores
from tensorc_dsl.proof.equivalence.bits import may_return_either_zero
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.tuning.cluster.runner import DEATHS, WAIT_SECONDS
from tensorc_dsl.tuning.cluster.ssh import FORM, Board, Lost, received
from tensorc_dsl.tuning.measure.check import Verdict
from tensorc_dsl.tuning.measure.child import AT_EXTREMES, Built, Job, Prepare, Task, fault_at
from tensorc_dsl.tuning.measure.local import BUILD_SECONDS, BUILDERS, RUN_SECONDS, BatchRunner
from tensorc_dsl.tuning.measure.outcome import (
    ENOUGH_SECONDS,
    GIVE_UP,
    LONGER,
    MOST,
    MachineChange,
    Outcome,
    Status,
    seconds_of,
    weighted_times,
)

KEPT = 16
"""How many programs stay on the board, where they may run again: the finalists of a search do."""

BESIDE = 0xC5
"""What lies between the elements of an array with strides that is sent, and UNWRITTEN of one that is not."""

UNWRITTEN = 0xFF

_RAN = b"tensorc-dsl-ran "
"""How the line begins that has the status of a run."""


class _Said(msgspec.Struct, frozen=True):
    """What a program prints, as far as it matters here: the digests of the first and the last outputs, and the times."""

    digest: str
    last: str = ""
    times_ns: tuple[float, ...] = ()

    @property
    def differ(self) -> bool:
        """Whether the last outputs are other ones, and stand behind the first."""
        return bool(self.last) and self.last != self.digest


@frozen
class _Check:
    """A task at one size, whose inputs are in a file on the board; `weight` if it is timed there."""

    task: Task
    sizes: Sizes
    file: str
    weight: float | None = None
    extreme: bool = False

    def fault(self, why: str) -> str:
        return f"{AT_EXTREMES}: {why}" if self.extreme else fault_at(self.sizes, why)


@frozen
class _Run:
    """What came of a run: its status, and if that is 0 what it printed and the bytes of its outputs, twice if they differ."""

    status: int
    said: _Said | None = None
    outputs: tuple[bytes, ...] = ()


class BoardRunner(BatchRunner):
    """Checks and times candidates of one task on a board; as `LocalRunner`, which builds as it does.

    `told` hears when the board is lost and when it is back, for which a search waits for `patience` seconds. Raises
    TschedError (E0884) if it does not come back, and E0883 if it cannot run a program for want of space.
    """

    def __init__(
        self,
        program: Program,
        target: Target,
        board: Board,
        *,
        threads: int,
        seed: int = 0,
        turns: Turns | None = None,
        bits_of: Program | None = None,
        told: Callable[[MachineChange], None] = lambda _: None,
        on_preparing: Callable[[bool], None] = lambda _: None,
        patience: float = WAIT_SECONDS,
        run_seconds: float = RUN_SECONDS,
    ) -> None:
        super().__init__(
            program,
            target,
            threads=threads,
            builders=BUILDERS,
            build_seconds=BUILD_SECONDS,
            turns=turns or Turns(),
            bits_of=bits_of,
            form=FORM,
        )
        self._board = board
        self._seed = seed
        self._tell = told
        self._on_preparing = on_preparing
        self._patience = patience
        self._run_seconds = run_seconds
        self._mark = f"t{board.number()}_"
        """How the names of this task's files on the board begin."""
        self._checks: list[_Check] = []
        self._sent = 0
        """The connection by which the inputs were sent."""
        self._files: OrderedDict[str, None] = OrderedDict()
        self.compared = 1.0
        """The share of the results that checks compare with numbers, once the reference is there."""

    def run(self, built: Built, best: float | None, build_seconds: float = 0.0, extremes: bool = True) -> Outcome:
        """Check and time one kernel. A connection that breaks is made again, and the kernel runs again; one during which it
        broke several times is taken for a crash."""
        for _ in range(DEATHS):
            try:
                self._prepare()
                return self._measured(built, best, build_seconds, extremes)
            except Lost as e:
                self._board.reopen(str(e), self._patience, self._tell)
        message = f"the connection to the board broke {DEATHS} times while it ran"
        return Outcome(
            Status.CRASH,
            message=message,
            build_seconds=build_seconds,
            compared=self.compared,
            machine=self._board.machine,
        )

    def _warm_up(self) -> None:
        pass

    def close(self) -> None:
        super().close()
        self._checks = []

    # The task.

    def _prepare(self) -> None:
        """Make the inputs and the reference, and send the inputs, where that is not done."""
        if self._checks and self._sent == self._board.opened:
            return
        if not self._sent:
            self._tell(MachineChange(self._board.machine, "joined"))
        self._on_preparing(True)
        new = not self._checks
        if new:
            self._checks = self._made()
            self.compared = min(c.task.compared for c in self._checks if not c.extreme)
        if self._sent != self._board.opened:
            self._files.clear()
            for c in self._checks:
                data = _inputs(c.task)
                done = self._board.call(received(c.file, data), data)
                if done.returncode:
                    raise self._board.unable(self._target, done.stderr)
            self._sent = self._board.opened
        if new and self._bits_of is not None:
            try:
                self._checks = self._with_own_bits(self._bits_of)
            except BaseException:
                self._checks = []  # without the bits they are not what they are to be
                raise
        self._on_preparing(False)

    def _made(self) -> list[_Check]:
        cores = min(self._threads, usable_cores())
        job = Job.of(Prepare(format_program(self._program), self._target.kind, self._seed, cores))
        weights = [next((w for t, w in job.timed if t is task), None) for task in job.checked]
        rows = [(t, x, w, False) for t, x, w in zip(job.checked, job.sizes, weights, strict=True)]
        rows += [(t, job.sizes[0], None, True) for t in job.extremes]
        # Those that are timed come last: a kernel that is wrong elsewhere is not timed.
        rows.sort(key=lambda row: row[2] is not None)
        return [_Check(t, x, f"{self._mark}in{n}", w, e) for n, (t, x, w, e) in enumerate(rows)]

    def _with_own_bits(self, program: Program) -> list[_Check]:
        """The checks with the bits that a program gives on the board. Raises TschedError (E0716) if there is no kernel."""
        built, zeros = self._with_bits(program), may_return_either_zero(program)
        plain = [c for c in self._checks if not c.extreme]
        runs, said = self._run(built.file, [replace(c, weight=None) for c in plain], None)
        if len(runs) < len(plain) or runs[-1].status:
            raise self._board.unable(self._target, said)
        bits = {c.file: _arrays(c.task, run.outputs[0]) for c, run in zip(plain, runs, strict=True)}
        return [
            replace(c, task=replace(c.task, bits=_named(c.task, bits[c.file]), zeros=zeros)) if c.file in bits else c
            for c in self._checks
        ]

    # A candidate.

    def _measured(self, built: Built, best: float | None, build_seconds: float, extremes: bool) -> Outcome:
        started = time.monotonic()
        checks = [c for c in self._checks if extremes or not c.extreme]
        runs, said = self._run(built.file, checks, best)
        found = self._judged(checks, runs, best, said)
        return replace(
            found,
            build_seconds=build_seconds,
            run_seconds=time.monotonic() - started,
            compared=self.compared,
            machine=self._board.machine,
        )

    def _run(self, file: bytes, checks: Sequence[_Check], best: float | None) -> tuple[list[_Run], bytes]:
        """The runs of a program up to the first that fails, and what was said on standard error. Raises Lost."""
        name = f"{self._mark}{blake2b(file, digest_size=12).hexdigest()}"
        old = [] if name in self._files else [*self._files][: max(0, len(self._files) + 1 - KEPT)]
        new = name not in self._files
        send = f"rm -f {' '.join(old)}; {received(name, file)}; chmod 700 {name} || exit 1; " if new else ""
        out, said = f"{self._mark}out", f"{self._mark}said"
        each = [
            f"./{name} {self._options(c, best)} --inputs {c.file} --output {out} > {said}; s=$?; "
            f"echo; echo {_RAN.decode()}$s; cat {said}; [ $s -eq 0 ] || exit 0; cat {out}; "
            for c in checks
        ]
        script = f"{send}{''.join(each)}rm -f {out} {said}"
        done = self._board.call(script, file if new else b"", len(checks) * self._run_seconds)
        if done.returncode:
            raise self._board.unable(self._target, done.stderr)
        for other in old:
            del self._files[other]
        self._files[name] = None
        self._files.move_to_end(name)
        return [*_runs(done.stdout, checks)], done.stderr

    def _options(self, check: _Check, best: float | None) -> str:
        words = [f"{d.name}={check.sizes[d.name]}" for d in self._program.dims]
        words.append(f"--limit {max(1, round(self._run_seconds))}")
        if check.weight is None:
            return " ".join([*words, "--seconds 0"])
        timed = sum(c.weight is not None for c in self._checks)
        words.append(f"--seconds {LONGER * ENOUGH_SECONDS / timed:.4f} --samples {MOST}")
        # Alone, a size makes the mean at least its weighted time.
        return " ".join([*words, *([] if best is None else [f"--best {best / check.weight * 1e9:.3f}"])])

    def _judged(self, checks: Sequence[_Check], runs: Sequence[_Run], best: float | None, said: bytes) -> Outcome:
        worst, of_sizes, weights = 0.0, list[tuple[float, ...]](), list[float]()
        censored = False
        for check, run in zip(checks, runs, strict=False):
            if run.status or run.said is None:
                return self._failed(check, run.status, said)
            for n, data in enumerate(run.outputs):
                verdict = _verdict(check.task, data)
                if verdict.fault:
                    after = f"after {len(run.said.times_ns)} runs, " if n else ""
                    fault = check.fault(f"{after}{verdict.fault}")
                    error = verdict.max_error if np.isfinite(verdict.max_error) else None
                    return Outcome(Status.WRONG_RESULT, message=fault, max_error=error)
                worst = max(worst, verdict.max_error)
            if check.weight is not None:
                times = tuple(max(t, 0.1) * 1e-9 for t in run.said.times_ns)
                of_sizes.append(times)
                weights.append(check.weight)
                censored |= best is not None and min(times) > GIVE_UP * best / check.weight
        times = weighted_times(of_sizes, weights)
        at = tuple(map(seconds_of, of_sizes)) if len(of_sizes) > 1 else ()
        return Outcome(Status.OK, seconds_of(times), times, max_error=worst, censored=censored, at=at)

    def _failed(self, check: _Check, status: int, said: bytes) -> Outcome:
        """The outcome of a program that ended with a status other than 0. Raises TschedError (E0883) if that says nothing of
        the kernel: a file could not be written, or there is no memory for the arrays."""
        own = [x for x in said.decode(errors="replace").splitlines() if x.startswith(f"{self._program.name}: ")]
        words = own[-1].partition(": ")[2].strip() if own else ""
        match status:
            case 3:
                return Outcome(Status.WRONG_RESULT, message=check.fault(words))
            case 4:
                return Outcome(Status.CRASH, message=words)
            case _ if status == 128 + signal.SIGALRM:
                return Outcome(Status.TIMEOUT, message=f"running takes more than {self._run_seconds:g} s")
            case _ if status > 128:
                return Outcome(Status.CRASH, message=f"the process ended: {_signal(status - 128)}")
            case _:
                raise self._board.unable(self._target, said)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _runs(data: bytes, checks: Sequence[_Check]) -> Iterator[_Run]:
    """What a board sent of each run: a line with its status, one that the program printed, and its outputs."""
    at = 0
    for check in checks:
        at = data.find(_RAN, at)
        if at < 0:
            raise Lost("a part of what the board sent is missing")
        line, _, _ = data[at + len(_RAN) :].partition(b"\n")
        at += len(_RAN) + len(line) + 1
        status = int(line)
        if status:
            yield _Run(status)
            return
        printed, _, _ = data[at : at + (1 << 20)].partition(b"\n")
        at += len(printed) + 1
        said, size = msgspec.json.decode(printed, type=_Said), sum(_bytes(p) for p in _written(check.task))
        outputs = tuple(data[at + n * size : at + (n + 1) * size] for n in range(2 if said.differ else 1))
        at += size * len(outputs)
        if at > len(data):
            raise Lost("a part of what the board sent is missing")
        yield _Run(0, said, outputs)


# Arrays as a program reads and writes them: their bytes, with those between the elements where they have strides.


def _view(p: Buffer, memory: NDArray[np.uint8]) -> Array:
    shape, dtype = shape_of(p), stored_dtype(p.dtype)
    return np.ndarray(shape, dtype, memory, 0, tuple(n * dtype.itemsize for n in strides_of(p)))


def _bytes(p: Buffer) -> int:
    return elements_spanned(shape_of(p), strides_of(p)) * stored_dtype(p.dtype).itemsize


def _written(task: Task) -> list[Buffer]:
    """The arrays that a program writes to its file of outputs, in order."""
    names = {p.updates or p.name for p in task.program.outputs}
    return [p for p in callers_params(task.program) if p.name in names]


def _inputs(task: Task) -> bytes:
    """The file of the inputs."""
    parts: list[bytes] = []
    for p in callers_params(task.program):
        if p.name in task.inputs:
            memory = np.full(_bytes(p), BESIDE, np.uint8)
            _view(p, memory)[...] = task.inputs[p.name]
            parts.append(memory.tobytes())
    return b"".join(parts)


def _parts(task: Task, data: bytes) -> Iterator[tuple[Buffer, NDArray[np.uint8]]]:
    at = 0
    for p in _written(task):
        yield p, np.frombuffer(data, np.uint8, _bytes(p), at)
        at += _bytes(p)


def _arrays(task: Task, data: bytes) -> dict[str, Array]:
    """The arrays in a file of outputs."""
    return {p.name: _view(p, memory) for p, memory in _parts(task, data)}


def _named(task: Task, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by their names in the task, of which one may update an input."""
    return {p.name: arrays[p.updates or p.name] for p in task.program.outputs}


def _verdict(task: Task, data: bytes) -> Verdict:
    """Compare the outputs in a file with the reference. The program has compared the inputs, and what lies around arrays."""
    for p, memory in _parts(task, data):
        if p.strides:
            beside, wanted = (
                memory.copy(),
                np.full(memory.size, BESIDE if p.name in task.inputs else UNWRITTEN, np.uint8),
            )
            _view(p, beside)[...] = 0
            _view(p, wanted)[...] = 0
            if not np.array_equal(beside, wanted):
                return Verdict(np.inf, f"it writes outside of `{p.name}`: between its elements")
    found: dict[str, Any] = {**task.inputs, **_arrays(task, data)}
    return task.verdict(found)
