from typing import Any, Literal

from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_array

class MaximumFlowResult:
    flow: csr_array

def connected_components(csgraph: coo_matrix, *, directed: bool) -> tuple[int, NDArray[Any]]: ...
def floyd_warshall(csgraph: NDArray[Any]) -> NDArray[Any]: ...
def maximum_flow(csgraph: csr_array, source: int, sink: int) -> MaximumFlowResult: ...
def breadth_first_order(
    csgraph: csr_array, i_start: int, *, directed: bool = ..., return_predecessors: Literal[False]
) -> NDArray[Any]: ...
