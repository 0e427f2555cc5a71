from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tensorc_dsl.playground.page import first
from tensorc_dsl.playground.server import Playground


@pytest.fixture(scope="package")
def playground() -> Iterator[Playground]:
    """A server for the text that a page begins with."""
    with Playground(first()) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        try:
            yield served
        finally:
            served.shutdown()
            thread.join(60)
