from typing import Any

from numpy.typing import NDArray

def floyd_warshall(csgraph: NDArray[Any]) -> NDArray[Any]: ...
