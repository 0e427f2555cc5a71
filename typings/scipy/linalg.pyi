from typing import Any

from numpy import float64
from numpy.typing import NDArray

def cholesky(a: NDArray[float64], lower: bool = ..., *, check_finite: bool = ...) -> NDArray[float64]: ...
def cho_solve(
    c_and_lower: tuple[NDArray[float64], bool], b: NDArray[float64], *, check_finite: bool = ...
) -> NDArray[float64]: ...
def solve_triangular(
    a: NDArray[float64],
    b: NDArray[float64],
    trans: int = ...,
    lower: bool = ...,
    unit_diagonal: bool = ...,
    *,
    check_finite: bool = ...,
) -> NDArray[float64]: ...
def hadamard(n: int) -> NDArray[Any]: ...
def toeplitz(c: NDArray[float64], r: NDArray[float64] | None = ...) -> NDArray[float64]: ...
