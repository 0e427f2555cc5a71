"""The description of the machine's processors, from the system's files."""

from __future__ import annotations

from pathlib import Path

from bench.against.machine import apart, described


def test_threads_have_cores_of_their_own(tmp_path: Path) -> None:
    for cpu, siblings in {0: "0,1", 1: "0,1", 2: "2-3", 3: "2-3", 4: "4"}.items():
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings)
    assert apart([0, 1, 2, 3, 4], tmp_path) == [0, 2, 4, 1, 3]
    assert apart([1, 3], tmp_path) == [1, 3]
    assert apart([6, 7], tmp_path) == [6, 7]


def test_the_processor_has_the_name_that_the_system_gives_it(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: AMD EPYC 9B14\n\nprocessor\t: 1\nmodel name\t: AMD EPYC 9B14\n")
    assert described("znver4", 2, info) == "AMD EPYC 9B14 (znver4), 2 processors"
    assert described("znver4", 2, tmp_path / "none") == "znver4, 2 processors"
