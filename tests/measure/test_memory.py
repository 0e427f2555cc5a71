"""The memory that may be filled is the least of the machine's, the control groups' and the process's limits."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.machine import available
from tensorc_dsl.tuning.measure import local
from tensorc_dsl.tuning.measure.local import LocalRunner, memory_of
from tests.programs import matmul

MB = 1 << 20


@pytest.fixture(autouse=True)
def plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 1000 MB free."""
    free = psutil.virtual_memory()._replace(available=1000 * MB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)


def system(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    for name, text in ({"proc/self/cgroup": cgroup} | {f"sys/fs/cgroup/{n}": t for n, t in files.items()}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_groups_it_is_what_the_machine_has_free(tmp_path: Path) -> None:
    assert available(tmp_path) == 1000 * MB


@pytest.mark.parametrize(
    ("own", "outer", "left"),
    [(("max", 0, 0), ("max", 0, 0), 1000), ((f"{300 * MB}", 100, 0), ("max", 500, 0), 200),
     ((f"{300 * MB}", 100, 30), ("max", 500, 0), 230), ((f"{900 * MB}", 100, 0), (f"{600 * MB}", 500, 0), 100),
     ((f"{300 * MB}", 400, 0), ("max", 0, 0), 0)],
)  # fmt: skip
def test_a_group_and_those_around_it_limit(
    tmp_path: Path, own: tuple[str, int, int], outer: tuple[str, int, int], left: int
) -> None:
    files: dict[str, str] = {}
    for group, (most, used, cache) in {"jobs/ours": own, "jobs": outer}.items():
        files[f"{group}/memory.max"] = most + "\n"
        files[f"{group}/memory.current"] = f"{used * MB}\n"
        files[f"{group}/memory.stat"] = f"anon 5\ninactive_file {cache * MB}\nactive_file 7\n"
    assert available(system(tmp_path, "0::/jobs/ours\n", files)) == left * MB


def test_in_a_container_the_group_is_the_root(tmp_path: Path) -> None:
    files = {"memory.max": f"{400 * MB}", "memory.current": f"{50 * MB}"}
    assert available(system(tmp_path, "0::/\n", files)) == 350 * MB


def test_groups_of_version_1(tmp_path: Path) -> None:
    cgroup = "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n"
    files = {"memory/memory.limit_in_bytes": f"{400 * MB}", "memory/memory.usage_in_bytes": f"{50 * MB}",
             "memory/memory.stat": f"total_inactive_file {10 * MB}\n"}  # fmt: skip
    assert available(system(tmp_path, cgroup, files)) == 360 * MB


def test_a_limit_of_ones_own_counts() -> None:
    text = "import resource as r; r.setrlimit(r.RLIMIT_DATA, (123 << 20,) * 2)\n"
    text += "from tensorc_dsl.processes.machine import available; print(available())"
    said = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True, timeout=120).stdout
    assert int(said) == 123 * MB
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY


def test_a_task_larger_than_what_is_available_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may have more, and others use it."""
    monkeypatch.setattr(local, "available", lambda: 10 * MB)
    LocalRunner(matmul(64, 64, 64), Target(), threads=1).close()
    with pytest.raises(TschedError, match=r"E0706.*takes about 0.13\d GB; this machine has 0.00944 GB to spare"):
        LocalRunner(matmul(1024, 1024, 1024), Target(), threads=1)


def test_builders_share_what_there_is() -> None:
    assert memory_of(3000 * MB, 2) == local.Memory(1500 * MB, 3000 * MB)
    assert memory_of(64 << 30, 2) == local.Memory(4 << 30, 64 << 30)
    assert memory_of(10 * MB, 2) == local.Memory(512 * MB, 512 * MB)


def test_without_proc_the_system_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise FileNotFoundError(2, "No such file or directory", "/proc/meminfo")

    monkeypatch.setattr(psutil, "virtual_memory", missing)
    assert 0 < available(tmp_path) <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
