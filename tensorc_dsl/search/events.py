"""The events of a running search, which the faces show. The search does not depend on its listeners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorc_dsl.measure.outcome import Outcome
from tensorc_dsl.records.queue import Unkept
from tensorc_dsl.search.regret import Regret
from tensorc_dsl.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Started:
    """`budget` are the seconds after which the search ends, where the clock ends it; `until` is the regret that ends it."""

    task: str
    strategy: str
    trials: int
    seed: int
    budget: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Proposed:
    """A batch goes to the machine; `ask_seconds` is what finding and expanding it took."""

    traces: tuple[Trace, ...]
    ask_seconds: float


@dataclass(frozen=True, slots=True)
class Preparing:
    """The inputs and the reference that results are compared with are computed; `Prepared` follows."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """They are there."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Trial number `trial` (from 0) is done; `best_seconds` is the best so far, this one included."""

    trial: int
    trace: Trace
    outcome: Outcome
    best_seconds: float | None


@dataclass(frozen=True, slots=True)
class Corrected:
    """Another outcome of trial number `trial` takes the place of the one that was told: the machine was slow then."""

    trial: int
    trace: Trace
    outcome: Outcome
    best_seconds: float | None


@dataclass(frozen=True, slots=True)
class Resumed:
    """The search goes on with one of which so many trials are recorded; with none, it begins anew."""

    trials: int


@dataclass(frozen=True, slots=True)
class Informed:
    """The strategy uses so many trials of so many other tasks, which were recorded on this machine."""

    trials: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Diverged:
    """The search that is resumed asks for other programs than it did, and so far not for those of so many records."""

    trials: int


@dataclass(frozen=True, slots=True)
class Drifted:
    """The best program takes `factor` times as long as it did: the machine is slower than it was, and is waited for."""

    factor: float


@dataclass(frozen=True, slots=True)
class Settled:
    """The machine is as fast as before, after so many seconds; so many trials are measured again."""

    factor: float
    waited: float
    trials: int


@dataclass(frozen=True, slots=True)
class Slowed:
    """The machine stays `factor` times slower: from now on times are divided by that."""

    factor: float


@dataclass(frozen=True, slots=True)
class Sharing:
    """Another process of the user's times kernels on this machine, and the two take turns; `given_up` where its turn did not
    end, and both go on."""

    given_up: bool


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The space gave nothing new after so many programs; `whole` where every move from each of them was followed."""

    programs: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Comparing:
    """The best few are measured again, by turns."""

    finalists: int


@dataclass(frozen=True, slots=True)
class Verifying:
    """Finalist number `finalist` (from 0) is proved to compute what its task does."""

    finalist: int
    finalists: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """From now on records wait: the database does not take them."""

    unkept: Unkept


@dataclass(frozen=True, slots=True)
class Finished:
    """The finalists were measured side by side; `interrupted` when the search was cut short."""

    trials: int
    best_seconds: float | None
    elapsed_seconds: float
    interrupted: bool


Event = (
    Started | Proposed | Preparing | Prepared | Measured | Corrected | Waiting | Resumed | Informed | Diverged | Drifted
    | Settled | Slowed | Sharing | Exhausted | Comparing | Finished | Verifying | Regret
)  # fmt: skip
Listener = Callable[[Event], None]
