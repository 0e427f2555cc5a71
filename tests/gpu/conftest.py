from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gpu.pretend import pretended


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in of `pycuda.driver`. Its GPU computes the matrix product of `tests.gpu.products.PRODUCT`."""
    monkeypatch.setenv("FAKE_PRODUCT", "32,16,8")
    with pretended() as fake:
        yield fake
