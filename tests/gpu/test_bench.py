"""`bench.gpu` plans its time, prints what it found, and goes on after a part that fails. No GPU is needed for that."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import tensorc_dsl as td
from bench import gpu
from bench.gpu import Ended, planned, printed, run_part
from bench.gpu_parts import COMPARED, HEAD, PARTS, PEERS, SMALL, CannotRun, Row, definition
from tests.gpu.pretend import pretended, without_pycuda


def test_each_part_has_its_share_of_what_is_left() -> None:
    plan = planned([], 900.0)
    assert plan.parts == tuple(PARTS)
    assert plan.share(0, 900.0) == pytest.approx(100.0)
    assert plan.share(3, 500.0) == 500.0, "the last part has the rest"
    assert plan.share(1, -5.0) == gpu.LEAST, "a part is tried even if those before it took too long"
    assert planned(["torch", "proofs"], 60.0).parts == ("proofs", "torch")
    with pytest.raises(ValueError, match="there is no part 'cuda'; the parts are proofs, sanitizer, nvcc, torch"):
        planned(["cuda"], 60.0)


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_rows_before_a_fault_are_kept_and_its_reason_is_told() -> None:
    row = msgspec.json.encode(Row("softmax 0", ours=1e-5)).decode()
    ended = run_part("proofs", 5.0, python(f"import sys; print({row!r}); sys.exit('an illegal memory access')"))
    assert (ended.rows, ended.trouble, ended.ok) == ((Row("softmax 0", ours=1e-5),), "an illegal memory access", False)


def test_a_part_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(command: list[str], *, timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout, msgspec.json.encode(Row("a")) + b"\n")

    monkeypatch.setattr(subprocess, "run", hangs)
    ended = run_part("proofs", 8.0)
    assert ended.rows == (Row("a"),)
    assert ended.trouble == "it did not end within 40 s"


def test_what_is_printed() -> None:
    rows = (Row("a", ours=2e-6, theirs=3e-6, beside="torch"), Row("b", wrong="B[0] is 1, not 2"), Row("c"))
    assert printed(Ended("torch", rows, "no more time", 12.3)).splitlines() == [
        "torch: 3 done, 1 wrong, 12 s",
        f"    {'a':44}        2.0 µs        3.0 µs of torch   1.50×",
        f"    {'b':44}  WRONG: B[0] is 1, not 2",
        f"    {'c':44}  right",
        "    no more time",
    ]


def test_without_a_gpu_every_part_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with without_pycuda():
        ended = {name: part.run(1e18) for name, part in PARTS.items()}
        for rows in ended.values():
            with pytest.raises(CannotRun, match="PyCUDA is not installed"):
                next(rows)
    assert gpu.main(["--only", "proofs", "--seconds", "1", "--json", str(tmp_path / "found.json")]) == 1
    assert "proofs: 0 done, 0 wrong" in capsys.readouterr().out
    assert json.loads((tmp_path / "found.json").read_text())["proofs"]["ok"] is False


def test_every_case_is_a_task_on_the_gpu() -> None:
    texts = [*SMALL.values(), *COMPARED.values(), *(p.text for p in PEERS.values())]
    with pretended():
        tasks = td.loads(HEAD + "".join(definition(f"t{n}", x) for n, x in enumerate(texts)), target="native-cuda")
        assert all(t.target.device for t in tasks.values())
    assert len(tasks) == len(texts)


def test_what_there_was_no_time_for_is_told() -> None:
    with pretended(), pytest.raises(CannotRun, match="there was no time for `matmul f32` and what comes after it"):
        next(PARTS["proofs"].run(0.0))
