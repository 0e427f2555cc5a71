"""The cores that a process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tensorc_dsl.processes.machine import usable_cores
from tensorc_dsl.tuning.machine import host


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"a/b/cpu.max": "max 100000\n"}, 8),
        ({"a/b/cpu.max": "250000 100000\n"}, 2),
        ({"a/b/cpu.max": "50000 100000\n"}, 1),
        ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        ({"a/b/cpu.max": "400000 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        ({"cpu.max": "200000 100000\n"}, 2),  # a container sees its own group as the root
        ({"a/b/cpu.max": "1600000 100000\n"}, 8),
        ({"a/b/cpu.max": "nonsense"}, 8),
    ],
)
def test_control_groups(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    for name, text in files.items():
        write(tmp_path / "fs" / name, text)
    write(tmp_path / "own", "0::/a/b\n")
    assert usable_cores(tmp_path / "fs", tmp_path / "own") == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 8), ("450000", 4)])
def test_control_groups_of_the_first_kind(tmp_path: Path, quota: str, cores: int) -> None:
    write(tmp_path / "fs/cpu/x/cpu.cfs_quota_us", quota)
    write(tmp_path / "fs/cpu/x/cpu.cfs_period_us", "100000")
    write(tmp_path / "own", "5:cpuacct,cpu:/x\n4:memory:/y\n")
    assert usable_cores(tmp_path / "fs", tmp_path / "own") == cores


def test_where_nothing_is_said_of_groups(tmp_path: Path) -> None:
    assert usable_cores(tmp_path, tmp_path / "missing") == 8


def test_a_kernel_has_as_many_threads_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "usable_cores", lambda: 3)
    assert host.host_target().cores == 3
    assert host.host_target(5).cores == 5
