"""A worker in a process of its own whose station is a stub.

    python -m tests.cluster.stub_worker SCHEDULER NUMBER TIMING FREE GATE [DEADLY]

A timing takes TIMING seconds. After FREE timings it waits at each one until there is a file GATE. It ends at once, as a
machine does that loses its power, when it times the kernel whose digest is DEADLY. It says on standard output what it times.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from itertools import count
from pathlib import Path

from tensorc_dsl.tuning.cluster import pool
from tensorc_dsl.tuning.cluster.access import Address
from tensorc_dsl.tuning.cluster.pool import serve
from tensorc_dsl.tuning.cluster.station import Orders, TimeOrder
from tests.cluster.stub import Stub


def digest(kernel: bytes) -> str:
    return hashlib.blake2b(kernel, digest_size=8).hexdigest()


def main() -> None:
    scheduler, number, timing, free, gate, *deadly = sys.argv[1:]
    begun = count(1)
    pool.AGAIN_SECONDS = 0.1

    def note(order: Orders) -> None:
        if isinstance(order, TimeOrder):
            print(order.id, flush=True)
            if any(digest(job.code.object_code) in deadly for job in order.jobs):
                os._exit(1)
            held = next(begun) > int(free)
            while held and not Path(gate).exists():
                time.sleep(0.02)

    serve(Address.of(scheduler), [Stub(int(number), timing=float(timing), fault=note)], patience=60.0)


if __name__ == "__main__":
    main()
