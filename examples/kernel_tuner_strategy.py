"""A strategy for Kernel Tuner (https://kerneltuner.github.io): tensorc-dsl chooses what it compiles and times next.

from kernel_tuner import tune_kernel
from kernel_tuner.strategies.wrapper import OptAlgWrapper

strategy = OptAlgWrapper(Tensorc())
tune_kernel("add", "add.cu", size, arguments, values, strategy=strategy, strategy_options={"max_fevals": 100})
"""

from __future__ import annotations

import sys
from typing import Any

from kernel_tuner.strategies.wrapper import OptAlg  # pyright: ignore[reportMissingImports]
from kernel_tuner.util import StopCriterionReached  # pyright: ignore[reportMissingImports]

import tensorc_dsl


class Tensorc(OptAlg):
    """Searches for the least time. `strategy` is one of tensorc-dsl's."""

    def __init__(self, strategy: str = "bayes", seed: int = 0) -> None:
        super().__init__()
        self.strategy, self.seed = strategy, seed

    def __call__(self, func: Any, searchspace: Any) -> tuple[tuple[Any, ...], float]:
        names = list(searchspace.tune_params)

        def milliseconds(**values: Any) -> float | None:
            try:
                cost = float(func([values[name] for name in names]))
            except StopCriterionReached:
                raise StopIteration from None  # the budget of Kernel Tuner is spent
            return cost if cost < sys.float_info.max else None

        legal = [dict(zip(names, row, strict=True)) for row in searchspace.list]
        budget = func.tuning_options.strategy_options.get("max_fevals", len(legal))
        found = tensorc_dsl.tune_function(
            milliseconds, legal, trials=min(budget, len(legal)), strategy=self.strategy, seed=self.seed
        )
        if found.best is None:
            return tuple(searchspace.list[0]), sys.float_info.max
        return tuple(found.best[name] for name in names), found.seconds or sys.float_info.max
