from collections.abc import Sequence

from numpy import float64
from numpy.typing import NDArray

def rankdata(a: Sequence[float]) -> NDArray[float64]: ...
