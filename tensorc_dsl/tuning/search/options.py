"""The options of a search, for Python, the command line and benchmarks."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Literal, TypedDict, Unpack, get_args

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.syntax.names import did_you_mean

LAST_SEED = 2**63 - 1
"""The largest seed: the database keeps seeds as integers of 64 bits."""


Objective = Literal["mean", "worst"]
"""What is made small over open sizes. `mean`: the mean time of a call, if the task says how often sizes occur; else how many
times longer than the best kernel of its own that was tried a size takes, in the mean. `worst`: the most that any takes."""


class SearchChanges(TypedDict, total=False):
    """The options by name, each of which may be left out."""

    trials: int
    seed: int
    strategy: str
    budget: float | None
    resume: bool
    until: float | None
    shipped: bool
    kernels: int
    objective: Objective


@frozen
class SearchOptions:
    """How many schedules are tried, and which: given the times that are measured, the search is a function of these.

    It ends after so many trials or, where there is a `budget`, so many seconds, or, where `until` is 0.02, once the strategy
    states a regret of 2 % or less twice running. With open sizes, up to so many `kernels` for ranges of a size are joined to
    one that selects among them, after the last trial; the `objective` is a mean over the sizes, or the worst of them. With
    `resume` it goes on with the last one of the same seed and strategy that is recorded, and with `shipped` it learns from
    the records that come with the package, too. Raises ValueError for a negative number of trials or seconds, for less than
    one kernel, for a share that is not above 0, and for a seed that records cannot hold, below 0 or of more than 63 bits;
    TypeError for a value of another type.
    """

    trials: int = 64
    seed: int = 0
    strategy: str = "bayes"
    budget: float | None = None
    resume: bool = False
    until: float | None = None
    shipped: bool = True
    kernels: int = 1
    objective: Objective = "mean"

    def __post_init__(self) -> None:
        for name in ("trials", "seed", "kernels"):
            value = getattr(self, name)
            if not isinstance(value, Integral):
                raise TypeError(f"{name} is a whole number, not {value!r}")
            object.__setattr__(self, name, int(value))  # a number of NumPy too, which records could not hold
        for name, unit in (("budget", "seconds"), ("until", "a share, such as 0.02")):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
                raise TypeError(f"{name} is a number, {unit}, not {value!r}")
        if not isinstance(self.strategy, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"strategy is the name of one, not {self.strategy!r}")
        if not 0 <= self.seed <= LAST_SEED:
            raise ValueError(f"the seed must be from 0 to 2^63 - 1, not {self.seed}")
        if self.trials < 0:
            raise ValueError(f"trials must not be negative, not {self.trials}")
        if self.kernels < 1:
            raise ValueError(f"there is at least one kernel, not {self.kernels}")
        if self.objective not in get_args(Objective):
            raise ValueError(f"the objective is {' or '.join(get_args(Objective))}, not {self.objective!r}")
        if self.budget is not None and not self.budget >= 0:
            raise ValueError(f"the budget must not be negative, not {self.budget} s")
        if self.until is not None and not self.until > 0:
            raise ValueError(f"the search ends at a share above 0, not {self.until}")

    def but(self, **changes: Unpack[SearchChanges]) -> SearchOptions:
        """The same options but for these. Raises TypeError for a name that is none of theirs."""
        for name in changes:
            if name not in SearchChanges.__annotations__:
                close = did_you_mean(name, SearchChanges.__annotations__)
                raise TypeError(f"a search has no option {name!r}; {close}")
        return replace(self, **changes)
