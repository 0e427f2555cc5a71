"""What the operators of `stdlib/ops` should give, from NumPy and SciPy in float64, and sizes to ask at: odd, prime, or 1.

Each file of the library has one of its name in `operators`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tests.stdlib import operators
from tests.stdlib.numerics import Operator

FILES = tuple(m.name for m in iter_modules(operators.__path__))
"""The files of the library that have references."""

OPERATORS: dict[str, Operator] = {
    name: operator
    for file in FILES
    for name, operator in import_module(f"{operators.__name__}.{file}").OPERATORS.items()
}
"""By the name of the compute."""

CASES = [(name, number) for name, o in OPERATORS.items() for number in range(len(o.sizes))]
