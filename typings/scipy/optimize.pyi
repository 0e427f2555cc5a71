from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy import float64
from numpy.typing import NDArray

class OptimizeResult:
    x: NDArray[float64]
    fun: float
    success: bool

def minimize(
    fun: Callable[..., tuple[float, NDArray[float64]]],
    x0: NDArray[float64],
    args: tuple[Any, ...] = ...,
    *,
    jac: bool,
    method: str,
    bounds: Sequence[tuple[float, float]],
    options: Mapping[str, int | float],
) -> OptimizeResult: ...
def brentq(f: Callable[[float], float], a: float, b: float, *, xtol: float, rtol: float) -> float: ...
def linprog(
    c: Sequence[float],
    A_ub: NDArray[float64],
    b_ub: NDArray[float64],
    *,
    bounds: tuple[float | None, float | None],
) -> OptimizeResult: ...
def nnls(A: NDArray[float64], b: NDArray[float64]) -> tuple[NDArray[float64], float]: ...
def least_squares(
    fun: Callable[[Sequence[float]], NDArray[float64]],
    x0: NDArray[float64],
    *,
    loss: str,
    diff_step: float,
) -> OptimizeResult: ...
