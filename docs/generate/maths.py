"""The table of the maths functions of kernels, from their code."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.maths.call import CODES
from tensorc_dsl.report.entries.markdown import code, table


def accuracy() -> str:
    """A row for each method: its functions, its largest error, and its arguments."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for name, c in CODES.items():
        error = "correctly rounded" if c.ulps is None else f"{c.ulps:.2f}"
        rows.setdefault((c.method, error, c.arguments), []).append(code(name))
    return table(
        ["function of `f32`", "method", "largest error, ulp", "arguments"],
        [[", ".join(names), *row] for row, names in rows.items()],
    )
