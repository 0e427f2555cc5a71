from typing import Any

from numpy.typing import NDArray
from scipy.sparse import coo_matrix

def connected_components(csgraph: coo_matrix, *, directed: bool) -> tuple[int, NDArray[Any]]: ...
def floyd_warshall(csgraph: NDArray[Any]) -> NDArray[Any]: ...
