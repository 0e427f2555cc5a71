from typing import Any

from numpy.typing import NDArray

class _Matrix:
    def toarray(self) -> NDArray[Any]: ...
    def __matmul__(self, other: NDArray[Any]) -> NDArray[Any]: ...

class csr_matrix(_Matrix):
    def __init__(self, arg1: tuple[NDArray[Any], NDArray[Any], NDArray[Any]], shape: tuple[int, int]) -> None: ...

class csc_matrix(_Matrix):
    def __init__(self, arg1: tuple[NDArray[Any], NDArray[Any], NDArray[Any]], shape: tuple[int, int]) -> None: ...

class coo_matrix(_Matrix):
    def __init__(
        self, arg1: tuple[NDArray[Any], tuple[NDArray[Any], NDArray[Any]]], shape: tuple[int, int]
    ) -> None: ...
