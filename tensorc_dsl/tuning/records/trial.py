"""One recorded trial: the candidate, its outcome, and its key, the task and the target together."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, replace
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.graph import Graph, GraphCall, sizes_of, values_of
from tensorc_dsl.ir.nameless import nameless
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.trace.distribution import Decision

# One recorded trial: the candidate, its task and target, and its outcome.


Phase = Literal["trial", "again", "final", "context"]
"""An `again` row is a trial that was measured once more, since the machine was disturbed the first time. A `final` row is
a re-measurement of an earlier trial's program, side by side with the other finalists. A `context` row is one in runs of a
model, with weights out of caches; its time is compared with those of its `run` only."""

COMPARED: frozenset[Phase] = frozenset({"final", "context"})
"""The phases of rows that measure what earlier rows have chosen."""


@frozen
class Trial:
    """A row of the database. `seconds` is None unless `status` is "ok"; `created` is Unix time.

    `run` is the search, by a name that no other one has. `fingerprint` names the machine, and `modules` the versions of what
    made the schedule. `times` are all samples as they were taken: of a kernel that is far slower than the best they are few
    (`censored`), and where the machine was slow for long, `seconds` is their summary divided by `scale`. `cache` is the
    state of the caches before a timed call. `features` are the numbers of the program's loops, and `columns` identifies their
    definition (`tuning.search.expansion.meaning_of`). Records of format 1 have none of these.
    `names` are those of the task's program that the trace uses (`ir.nameless.in_scope`), none if they are those of who asks.
    `at` are the seconds at each timed size of open dimensions, as they were taken, where there are several sizes.
    """

    task_key: str
    target_key: str
    task: str
    strategy: str
    seed: int
    trial: int
    status: str
    decisions: Mapping[str, Decision]
    trace: str
    program_key: str
    seconds: float | None = None
    times: tuple[float, ...] = ()
    message: str = ""
    max_error: float | None = None
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    phase: Phase = "trial"
    created: float = field(default=0.0, compare=False)
    version: str = field(default="", compare=False)
    run: str = ""
    fingerprint: str = ""
    modules: Mapping[str, str] = field(default_factory=dict[str, str])
    censored: bool = False
    cache: str = ""
    scale: float = 1.0
    columns: str = ""
    features: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    at: tuple[float, ...] = ()


def as_measured(t: Trial) -> Trial:
    """The trial with its time as the summary of its samples, divided by nothing."""
    if t.seconds is None or t.scale == 1.0:
        return t
    from tensorc_dsl.tuning.measure.outcome import seconds_of  # a late import: it loads NumPy, and few records need it

    return replace(t, seconds=seconds_of(t.times) if t.times else t.seconds * t.scale, scale=1.0)


_NUMBER = "number"
"""The key of a number as text: JSON has no infinities, and whole numbers of 64 bits are all that is read everywhere."""

_decisions = msgspec.json.Decoder(dict[str, int | float | str | bool | tuple[int, ...] | dict[Literal["number"], str]])
_times = msgspec.json.Decoder(tuple[float, ...])
_modules = msgspec.json.Decoder(dict[str, str])
_names = msgspec.json.Decoder(tuple[str, ...])


def encode_decisions(decisions: Mapping[str, Decision]) -> str:
    return msgspec.json.encode({name: _plain(d) for name, d in decisions.items()}).decode()


def _plain(d: Decision) -> Decision | dict[str, str]:
    beyond = isinstance(d, int) and not -(2**63) <= d < 2**63
    return {_NUMBER: str(d)} if beyond or (isinstance(d, float) and math.isinf(d)) else d


def decode_decisions(text: str) -> Mapping[str, Decision]:
    """Inverse of `encode_decisions`: tuples come back as tuples. Raises msgspec.DecodeError."""
    try:
        return {name: _number(d[_NUMBER]) if isinstance(d, dict) else d for name, d in _decisions.decode(text).items()}
    except (KeyError, ValueError) as e:
        raise (
            e if isinstance(e, msgspec.DecodeError) else msgspec.ValidationError(f"there is no such number: {e}")
        ) from e


def _number(text: str) -> int | float:
    return float(text) if text.endswith("inf") else int(text)


def encode_times(times: tuple[float, ...]) -> str:
    return msgspec.json.encode(times).decode()


def decode_times(text: str) -> tuple[float, ...]:
    return _times.decode(text)


def encode_recorded_modules(modules: Mapping[str, str]) -> str:
    return msgspec.json.encode(modules, order="sorted").decode()


def decode_recorded_modules(text: str) -> Mapping[str, str]:
    return _modules.decode(text)


def encode_names(names: tuple[str, ...]) -> str:
    return msgspec.json.encode(names).decode()


def decode_names(text: str) -> tuple[str, ...]:
    return _names.decode(text)


# The key of a record: its task and the target it was measured on, always together.


def digest(text: str) -> str:
    """Sixteen bytes of BLAKE2b in hex: equal texts have equal digests, unequal ones do not collide by accident."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def program_key(program: Program) -> str:
    """The program's identity up to names: the digest of its text with numbers for them."""
    return digest(format_program(nameless(program)))


def keys_of(program: Program) -> tuple[str, str]:
    """The key of the program, and the one that it had up to format 2: the digest of its text, names included."""
    return program_key(program), digest(format_program(program))


def graph_key(graph: Graph) -> str:
    """The identity of a model up to names, with its calls joined as in the graph: what they compute, and what they read."""
    programs = {id(c.program): c.program for n in graph.nodes for c in n.calls if c.program is not None}
    keys = {number: program_key(p) for number, p in programs.items()}
    values, number = values_of(graph), dict[str, int]()

    def numbered(names: Iterable[str]) -> list[int]:
        return [number.setdefault(name, len(number)) for name in names]

    def said(c: GraphCall) -> tuple[object, ...]:
        does = sizes_of(values[c.results[0]]) if c.program is None else keys[id(c.program)]
        return does, numbered(c.arguments), numbered(c.results)

    calls = [[said(c) for c in n.calls] for n in graph.nodes]
    return digest(repr((calls, sorted(numbered(graph.ends)))))


def target_key(target: Target, threads: int, copies: int = 1) -> str:
    """The key of the machine, its instruction set and the number of threads: a time depends on these besides the program.

    So it does on whether calls take `copies` of the constant inputs in turn, which are out of caches then.
    """
    return f"{target.key}:{digest(target.features)[:8]}{':cold' * (copies > 1)}:t{threads}"


@frozen
class Subject:
    """The task and the machine of trials, as text that later versions can read: the unscheduled `program`, and the `facts`.

    `task_key` is equal for tasks that compute the same, whatever their parts are called; the program has the names of the
    first of them. `fingerprint` distinguishes machines that one target key serves, such as two with other caches.
    """

    task_key: str
    program: str
    fingerprint: str
    facts: str


def subject(program: Program, target: Target, threads: int, machine: str = "") -> Subject:
    """The subject of trials on this machine, or on the worker's machine of that name."""
    known = asdict(target)
    if not target.device:
        del known["device"]  # CPUs have the fingerprints that they had before there was such a fact
    facts = facts_text(known | {"with_threads": threads} | ({"machine": machine} if machine else {}))
    return Subject(program_key(program), format_program(program), digest(facts), facts)


def facts_text(facts: Mapping[str, int | float | str]) -> str:
    """The facts of a machine as text; its fingerprint is the digest of that text."""
    return msgspec.json.encode(facts, order="sorted").decode()


@frozen
class Machine:
    """A machine that trials were measured on, for models that learn from several: its key, and the numbers among its facts.

    The numbers are logarithms to base 2, of one more than the fact, sorted by name. So every fact that a target states is one
    of them, whenever it came to be stated.
    """

    target_key: str
    numbers: tuple[tuple[str, float], ...] = ()

    @staticmethod
    def of(target_key: str, facts: str) -> Machine:
        """The machine with these facts, as `facts_text` writes them. Raises msgspec.DecodeError."""
        known = _facts.decode(facts)
        return Machine(
            target_key,
            tuple((name, math.log2(1.0 + x)) for name, x in sorted(known.items()) if not isinstance(x, str) and x >= 0),
        )


def worker_of(facts: str) -> str:
    """The name of the worker's machine with these facts; empty if it was the machine of the search."""
    return str(_facts.decode(facts).get("machine", ""))


_facts = msgspec.json.Decoder(dict[str, int | float | str])


@cache
def package_key() -> str:
    """A digest of the package's code."""
    root = Path(__file__).parents[2]
    made = hashlib.blake2b(digest_size=16)
    for path in sorted(root.rglob("*.py")):
        made.update(path.read_bytes())
    return made.hexdigest()
