from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tensorc_dsl.faces.api.tasks import loads
from tensorc_dsl.faces.playground.page import first
from tensorc_dsl.faces.playground.server import Playground
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key

RECORD: dict[str, Decision] = {"rows": (32, 2), "columns": (3, 32), "depth": 8, "in_registers": True}
"""What the only record of the text that a page begins with has decided."""


@pytest.fixture(scope="package")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    """A server for the text that a page begins with, with one record of its task."""
    records = tmp_path_factory.mktemp("playground") / "records.sqlite"
    task = loads(first().text)["small"]
    keys = program_key(task.program), target_key(task.target, task.threads)
    trial = Trial(*keys, "small", "random", 0, 0, "ok", RECORD, "schedule s for f { }\n", "program", 1e-6, (1e-6,))
    with Database.open(records) as database:
        database.add_all([trial])
    with Playground(first(), records=str(records), check=60.0, show=60.0) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        try:
            yield served
        finally:
            served.shutdown()
            thread.join(60)
