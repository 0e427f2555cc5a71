"""The examples that tune what is not written in this language."""

from __future__ import annotations

import importlib.util
import json
import shutil
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tensorc_dsl

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_c_kernel_is_tuned() -> None:
    own = example("own_kernel")
    result = tensorc_dsl.tune_function(own.transpose, own.SPACE, trials=3)
    assert all(t.seconds is not None for t in result.trials), [t.message for t in result.trials]
    assert "let rows ~ sample_categorical([4, 8, 16, 32, 64, 128]) := " in str(result)


def test_kernel_tuner_uses_the_strategy(tmp_path: Path) -> None:
    pytest.importorskip("kernel_tuner")
    from kernel_tuner import tune_kernel  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    from kernel_tuner.strategies.wrapper import OptAlgWrapper  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    values: dict[str, list[int]] = {"block_size_x": [32, 64, 128, 256], "tile": [1, 2, 4, 8]}
    cache: dict[str, dict[str, Any]] = {}
    for x, tile in product(*values.values()):
        time: Any = "RuntimeFailedConfig" if x * tile == 2048 else 1.0 + abs(x - 128) / 128 + abs(tile - 4)
        row: dict[str, Any] = {"block_size_x": x, "tile": tile, "time": time, "times": [], "compile_time": 1.0}
        others = ("verification_time", "benchmark_time", "strategy_time", "framework_time")
        cache[f"{x},{tile}"] = row | dict.fromkeys(others, 0)
    head = {"device_name": "none", "kernel_name": "add", "problem_size": [1], "tune_params_keys": list(values)}
    path = tmp_path / "cache.json"
    path.write_text(json.dumps({**head, "tune_params": values, "objective": "time", "cache": cache}))
    found, _ = tune_kernel(
        "add",
        "__global__ void add(int n) { block_size_x; }",
        (1,),
        [np.int32(1)],
        values,
        lang="CUDA",
        restrictions=["block_size_x * tile >= 64"],
        strategy=OptAlgWrapper(example("kernel_tuner_strategy").Tensorc()),
        strategy_options={"max_fevals": 12},
        simulation_mode=True,
        cache=str(path),
        quiet=True,
    )
    times = {(r["block_size_x"], r["tile"]): r["time"] for r in found}
    assert len(times) == len(found) == 12
    assert all(x * tile >= 64 for x, tile in times)
    assert min(t for t in times.values() if isinstance(t, float)) == 1.0
