"""What the operators of `stdlib/ops` should give, from NumPy and SciPy in float64, and sizes to ask at: odd, prime, or 1.

Each file of the library has one of its name in `operators`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tests.stdlib.numerics import Operator

FILES = tuple(sorted(file.stem for file in (Path(__file__).parent / "operators").glob("*.py")))
"""The files of the library that have references."""

OPERATORS: dict[str, Operator] = {
    name: operator
    for file in FILES
    for name, operator in import_module(f"tests.stdlib.operators.{file}").OPERATORS.items()
}
"""By the name of the compute."""

CASES = [(name, number) for name, o in OPERATORS.items() for number in range(len(o.sizes))]
