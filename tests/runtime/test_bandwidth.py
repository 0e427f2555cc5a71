"""The bandwidth of memory."""

from __future__ import annotations

import pytest

from tensorc_dsl.backend.llvm.runtime.peak import bandwidth
from tensorc_dsl.tuning.machine.host import host_target


@pytest.mark.parametrize("size", [1, 100_000, 30_000_000])
def test_the_bandwidth_is_a_rate_that_a_machine_can_have(size: int) -> None:
    target = host_target()
    for threads in (1, target.cores):
        assert 0 < bandwidth(target, threads, size) < 1e13 * threads
