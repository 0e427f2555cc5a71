"""The thread pool, the roof, and the description of the machine."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tensorc_dsl.backend.llvm.codegen.machine import has_features
from tensorc_dsl.backend.llvm.runtime.native import fork_join_seconds
from tensorc_dsl.backend.llvm.runtime.peak import (
    DOT_BF16,
    DOT_U8I8,
    FMA,
    INSTRUCTIONS,
    Instruction,
    bandwidth,
    peak,
    widest,
)
from tensorc_dsl.tuning.machine.host import host_target

PATIENCE = 60.0
"""Seconds after which something hangs."""


def workers() -> list[str]:
    """The states of this process's other threads: S sleeps, R runs or would."""
    own = str(threading.get_native_id())
    found: list[str] = []
    for p in Path("/proc/self/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread of another test may just have ended
            found += [p.read_text()] if p.parent.name != own else []
    return [text.rpartition(")")[2].split()[0] for text in found]


def test_workers_sleep_after_a_while() -> None:
    fork_join_seconds(2)
    end = time.monotonic() + PATIENCE
    asleep = 0  # samples in a row; a worker that spins is met running in one of them
    while asleep < 20 and time.monotonic() < end:
        asleep = asleep + 1 if all(state == "S" for state in workers()) else 0
        time.sleep(0.002)
    assert asleep == 20
    assert fork_join_seconds(2, repeats=3) > 0  # and wake up again


def test_the_roof_is_a_rate_that_a_machine_can_have() -> None:
    target = host_target()
    for threads in (1, target.cores):
        assert 0 < peak(FMA, target, threads, repeats=20) < 1e12 * threads


@pytest.mark.parametrize(
    ("instruction", "feature", "times"), [(DOT_U8I8, "avx512vnni", 4), (DOT_BF16, "avx512bf16", 2)]
)
def test_instructions_for_narrow_types_do_more(instruction: Instruction, feature: str, times: int) -> None:
    target = host_target()
    if feature not in target.feature_names:
        pytest.skip(f"this machine has no {feature}")
    rate = peak(instruction, target, 1, repeats=20)
    assert 0 < rate < 1e12 * times


@pytest.mark.parametrize("bits", [128, 256])
def test_a_peak_is_that_of_the_processor_and_not_of_the_vectors_that_a_target_is_said_to_have(bits: int) -> None:
    """Code for the target may use all of its instructions, and some have vectors of one width only."""
    host = host_target(1)
    said = replace(host, vector_bits=bits)
    assert widest(said) == host.vector_bits
    for instruction in INSTRUCTIONS.values():
        if len(has_features(host, instruction.features)) == len(instruction.features):
            assert peak(instruction, said, 1, repeats=2) > 0
    assert bandwidth(said, 1, 1 << 16) > 0


def test_the_host_describes_itself() -> None:
    target = host_target()
    assert target.kind == "llvm"
    assert target.vector_bits in (128, 256, 512)
    assert target.cores >= 1
    assert 4096 <= target.l1 <= target.l2
    assert host_target(3).cores == 3
    with pytest.raises(ValueError, match="at least one thread"):
        host_target(0)


def test_a_process_that_used_threads_ends_cleanly() -> None:
    code = "from tensorc_dsl.backend.llvm.runtime.native import fork_join_seconds as f; f(3, 100); f(2, 100)"
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


COUNTED = """
import os
import numpy as np
import tensorc_dsl

task = tensorc_dsl.loads('''
compute scale(X: f32[M, 1024]) -> Y: f32[M, 1024] { Y[i, j] = exp(X[i, j]) }
schedule by_rows for scale {
    vectorize(Y.loops[1])
    parallel(Y.loops[0])
}
task scale = scale(M=1..4096) with by_rows
''', threads=2)["scale"]
kernel = task.replay(task.sample(0))
counts = [len(os.listdir("/proc/self/task"))]
for rows in (2, 512):
    x = np.linspace(-1, 1, rows * 1024, dtype=np.float32).reshape(rows, 1024)
    np.testing.assert_allclose(kernel(x), np.exp(x), rtol=1e-5)
    counts.append(len(os.listdir("/proc/self/task")))
print(counts[1] - counts[0], counts[2] - counts[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted by /proc")
def test_few_rows_of_an_open_size_start_no_thread() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.split() == ["0", "1"]
