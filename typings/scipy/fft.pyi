from typing import Any

from numpy.typing import NDArray

def dctn(x: NDArray[Any], *, axes: tuple[int, ...], norm: str) -> NDArray[Any]: ...
