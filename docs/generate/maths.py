"""The table of the maths functions of kernels, from their code."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.maths import CODES
from tensorc_dsl.faces.report.entries import code, table
from tensorc_dsl.ir.maths import MATHS, Takes


def accuracy() -> str:
    """A row for each method of floats: its functions, its largest errors, and its arguments."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, c in CODES.items():
        if MATHS[name].takes is Takes.INTEGERS or MATHS[name].tells:
            continue
        errors = ("correctly rounded",) * 2 if c.ulps is None else tuple(f"{x:.2f}" for x in c.ulps)
        rows.setdefault((c.method, *errors, c.arguments), []).append(code(name))
    return table(
        ["function", "method", "largest error of `f32`, ulp", "of `f64`", "arguments"],
        [[", ".join(names), *row] for row, names in rows.items()],
    )
