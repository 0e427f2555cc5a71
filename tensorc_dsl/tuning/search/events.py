"""The events of a running search, which the faces show. The search does not depend on its listeners."""

from __future__ import annotations

from collections.abc import Callable

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import MachineChange, Outcome
from tensorc_dsl.tuning.records.database import Unkept
from tensorc_dsl.tuning.search.strategy import Prediction, Regret


@frozen
class Started:
    """`budget` is the time limit of the search in seconds and `until` the regret that ends it, if it has one."""

    task: str
    strategy: str
    trials: int
    seed: int
    budget: float | None = None
    until: float | None = None


@frozen
class Proposed:
    """A batch is about to be measured; choosing and expanding it took `ask_seconds`.

    `predictions` has one for each trace, None where the strategy predicts nothing.
    """

    traces: tuple[Trace, ...]
    ask_seconds: float
    predictions: tuple[Prediction | None, ...] = ()


@frozen
class Learnt:
    """A batch is over: the strategy was updated with its outcomes and has estimated its regret, which took `seconds`."""

    seconds: float


@frozen
class Preparing:
    """The inputs and the reference that results are compared with are computed; `Prepared` follows."""


@frozen
class Prepared:
    """The inputs and the reference are computed; checks compare this share of the results with numbers."""

    compared: float = 1.0


@frozen
class Measured:
    """Trial number `trial` (from 0) is done; `best_seconds` is the best so far, this one included."""

    trial: int
    trace: Trace
    outcome: Outcome
    best_seconds: float | None


@frozen
class Corrected:
    """The outcome of trial number `trial` is replaced, since the machine was slow when it was measured."""

    trial: int
    trace: Trace
    outcome: Outcome
    best_seconds: float | None


@frozen
class Resumed:
    """The search resumes one with this number of recorded trials; without any, it begins anew."""

    trials: int


@frozen
class Informed:
    """The strategy uses so many trials of so many tasks; some were made `elsewhere`, on so many other `machines`."""

    trials: int
    tasks: int
    elsewhere: int = 0
    machines: int = 0


@frozen
class Unshipped:
    """The records that come with the package cannot be read, and the search goes on without them."""

    why: Diagnostic


@frozen
class Diverged:
    """The resumed search proposes other programs than before; this number of its records is unused so far."""

    trials: int


@frozen
class Drifted:
    """The best program takes `factor` times as long as before: the machine is slower, and the search waits."""

    factor: float


@frozen
class Settled:
    """The machine is as fast as before, after so many seconds; so many trials are measured again."""

    factor: float
    waited: float
    trials: int


@frozen
class Slowed:
    """The machine remains `factor` times slower: later times are divided by that. Its memory remains `memory` times slower:
    later times are uncertain by that."""

    factor: float
    memory: float = 1.0


@frozen
class Sharing:
    """Another process of the user's times kernels on this machine, and the two take turns; `given_up` if its turn did not
    end, and both go on."""

    given_up: bool


@frozen
class Crew:
    """Something became of a machine of a search on many; so many of them time kernels now."""

    news: MachineChange
    machines: int


@frozen
class Exhausted:
    """The space has no new program after this number; `whole` if every move from each of them was tried."""

    programs: int
    whole: bool


@frozen
class Comparing:
    """The best few are measured again, by turns."""

    finalists: int


@frozen
class Verifying:
    """Finalist number `finalist` (from 0) is proved to compute what its task does."""

    finalist: int
    finalists: int


@frozen
class Waiting:
    """Records wait from now on, since the database cannot be written."""

    unkept: Unkept


@frozen
class Finished:
    """The finalists were measured side by side; `interrupted` when the search was cut short."""

    trials: int
    best_seconds: float | None
    elapsed_seconds: float
    interrupted: bool


Event = (
    Started | Proposed | Preparing | Prepared | Measured | Corrected | Learnt | Waiting | Resumed | Informed | Unshipped
    | Diverged | Drifted | Settled | Slowed | Sharing | Crew | Exhausted | Comparing | Finished | Verifying | Regret
)  # fmt: skip
Listener = Callable[[Event], None]
