"""ONNX's own tests of operators: each case of a supported operator whose parameters can be constant.

Their making takes half a minute, so they run with `--all` only; `test_operators` has cases of each operator.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from onnx import numpy_helper

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.graph.control import CONTROL
from tensorc_dsl.graph.expanding import EXPANSIONS
from tensorc_dsl.graph.folding import EVALUATORS
from tensorc_dsl.graph.importing import TABLE
from tensorc_dsl.graph.onnx_file import has_body
from tests.graph.onnx_cases import Array, by_reference, by_runtime, checked

PARAMETERS = frozenset("shape axes axis starts ends steps pads repeats k K scales sizes roi split depth".split())
"""Inputs that are constants of a model, by their names in the cases."""

TABLES = ("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix", "Unique", "NonZero", "Range")
"""Operators of constants alone."""

NOT_IN_DOUBLE = {"test_dynamicquantizelinear"}
"""Cases whose expected result is rounded from float32 differently than from the reference's float64."""

AS_IN_RUNTIME = {
    "test_resize_downsample_scales_cubic_align_corners",
    "test_resize_downsample_scales_linear_align_corners",
}
"""Cases whose expected result is by a length that is not the tensor's, as no runtime has it: they are compared with one."""


@cache
def cases() -> dict[str, Any]:
    """The cases of ONNX by name, without those that spell an operator out."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)  # pyright: ignore[reportArgumentType]
    supported = {*TABLE, *EXPANSIONS, *EVALUATORS, *CONTROL, "Shape", "Size"}
    return {
        c.name: c
        for c in found
        if "expanded" not in c.name and c.data_sets and all(op in supported or has_body(op) for op in operators(c))
    }


def operators(case: Any) -> set[str]:
    """The operators of the model of a case."""
    return {n.op_type for n in case.model.graph.node}


def arrays(values: Any) -> Iterator[Array | None]:
    """The tensors of a case; None for what is none."""
    for v in values:
        yield np.asarray(v) if isinstance(v, np.ndarray | np.generic) else None


def test_every_case_of_onnx_is_right_or_refused(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    if not pytestconfig.getoption("--all"):
        pytest.skip("half a minute to make the cases; `--all` runs them")
    wrong: list[str] = []
    right = refused = 0
    for name, case in cases().items():
        model = case.model
        inputs, outputs = (list(arrays(v)) for v in case.data_sets[0])
        if any(v is None for v in inputs) or name in NOT_IN_DOUBLE:
            continue
        if name in AS_IN_RUNTIME:
            outputs = by_runtime(
                model, dict(zip((i.name for i in model.graph.input), map(np.asarray, inputs), strict=True))
            )
        names = [i.name for i in model.graph.input]
        first = names[0] if names else ""
        given: list[Array] = []
        for n, v in zip(names, inputs, strict=True):
            assert v is not None
            small = v.ndim <= 1 and v.dtype == np.int64 and v.size <= 16 and n != first
            op = model.graph.node[0].op_type
            if (
                n in PARAMETERS
                or (n, op) in (("condition", "Compress"), ("trip_count", "Loop"), ("cond", "Loop"))
                or op in TABLES
                or (small and op not in ("Gather", "Add", "Sub", "Mul", "Div", "Pow", "Mod"))
            ):
                model.graph.initializer.append(numpy_helper.from_array(v, n))
                model.graph.input.remove(next(i for i in model.graph.input if i.name == n))
            else:
                given.append(v)
        try:
            made = by_reference(*checked(model, tmp_path), given)
        except TschedError as e:
            if e.diagnostics[0].code not in ("E0940", "E0941"):
                wrong.append(f"{name}: {e.diagnostics[0].message}")
            refused += 1
            continue
        for m, w in zip(made, outputs, strict=True):
            if w is None:
                continue
            floats = w.dtype.kind == "f" or w.dtype == bfloat16
            loose = (1e-2, 2e-2) if w.dtype == bfloat16 else (1e-3, 2e-2) if w.dtype == np.float16 else (1e-3, 1e-6)
            same = m.shape == w.shape and m.dtype == w.dtype
            wide = (m.astype(np.float64), w.astype(np.float64)) if floats else (m, w)
            close = same and (np.allclose(*wide, *loose, equal_nan=True) if floats else np.array_equal(*wide))
            if not close:
                wrong.append(name)
        right += 1
    assert wrong == []
    assert right > 1100 and refused < 60
