"""`bench.gpu` plans its time, prints what it found, and goes on after a part that fails. No GPU is needed for that."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import msgspec
import pytest

import tensorc_dsl as td
from bench import gpu
from bench.gpu import Ended, planned, printed, run_part
from bench.gpu_case import HEAD, Asked, CannotRun, Row, definition, task_of
from bench.gpu_instructions import CASES, found
from bench.gpu_instructions import COMPUTES as OF_INSTRUCTIONS
from bench.gpu_parts import CANNOT, COMPARED, PARTS, SMALL
from bench.gpu_torch import COMPUTES, LEAST, PEERS
from tests.gpu.pretend import pretended, without_pycuda

EVER = Asked(1e18)

HANGS = "sys.stdout.flush()\nimport time\ntime.sleep(3600)"


def test_each_part_has_its_share_of_what_is_left() -> None:
    plan = planned([], 1300.0)
    assert plan.parts == tuple(PARTS)
    assert plan.share(0, 1300.0) == pytest.approx(250.0)
    assert plan.share(5, 500.0) == 500.0, "the last part has the rest"
    assert plan.share(1, -5.0) == gpu.LEAST, "a part is tried even if those before it took too long"
    assert planned(["torch", "proofs"], 60.0).parts == ("proofs", "torch")
    assert planned(["torch", "proofs"], 60.0, ["proofs"]).parts == ("torch",), "one that is done is left out"
    with pytest.raises(ValueError, match="there is no part 'cuda'; the parts are instructions, cal, proofs, torch"):
        planned(["cuda"], 60.0)


def says(*lines: str, then: str = "") -> Callable[[float, Sequence[str]], list[str]]:
    """A part that says lines, and ends as told."""
    return lambda _seconds, _done: [sys.executable, "-c", f"import sys\nfor x in {lines!r}: print(x)\n{then}"]


def row(case: str, **more: Any) -> str:
    return msgspec.json.encode(Row(case, **more)).decode()


def test_rows_before_a_lack_are_kept_and_its_reason_is_told() -> None:
    said = says(row("softmax 0", ours=1e-5), then=f"sys.stderr.write('there is no time'); sys.exit({CANNOT})")
    ended = run_part("proofs", 600.0, command=said)
    assert (ended.rows, ended.trouble, ended.ok) == ((Row("softmax 0", ours=1e-5),), "there is no time", False)


def test_a_case_that_ends_its_process_is_wrong_and_the_next_one_runs() -> None:
    told: list[Ended] = []

    def part(_seconds: float, done: Sequence[str]) -> Sequence[str]:
        if "b" in done:
            return says("> c", row("c"))(0.0, ())
        return says("> a", row("a"), "> b", then="sys.exit('an illegal memory access')")(0.0, ())

    ended = run_part("proofs", 600.0, told=told.append, command=part)
    assert ended.rows == (Row("a"), Row("b", wrong="it ended the part: an illegal memory access"), Row("c"))
    assert ended.trouble == ""
    assert [[r.case for r in x.rows] for x in told[:2]] == [["a"], ["a", "b"]], "each row is told as it comes"
    assert all(told[n].trouble for n in range(2)), "a part that is killed now is not one that is done"


def test_a_part_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is over when it has begun a case, however long that took."""
    limits: list[Callable[[], object]] = []

    class Timer:
        def __init__(self, seconds: float, ends: Callable[..., object], given: Sequence[Any]) -> None:
            assert seconds == 1.0
            limits.append(partial(ends, *given))

        def start(self) -> None: ...

        def cancel(self) -> None: ...

    lines = gpu._lines

    def read(stream: IO[str] | None) -> Iterator[str]:
        for line in lines(stream):
            yield line
            if line == "> b":
                limits[0]()

    monkeypatch.setattr(gpu, "SPARE", 1.0)
    monkeypatch.setattr(gpu, "_lines", read)
    monkeypatch.setattr(gpu, "threading", SimpleNamespace(Event=threading.Event, Timer=Timer))
    ended = run_part("proofs", -1e9, command=says("> a", row("a"), "> b", then=HANGS))
    assert ended.rows == (Row("a"), Row("b", wrong="it ended the part: it did not end within 1 s"))


def test_what_was_found_is_there_after_each_row_and_is_gone_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, asked = tmp_path / "found.json", list[tuple[str, list[str]]]()

    def command(name: str, _seconds: float, done: Sequence[str], _most: float) -> Sequence[str]:
        asked.append((name, list(done)))
        if not done:
            return says("> a", row("a"), "> b", then=f"sys.exit({CANNOT})")(0.0, ())
        return says("> b", row("b"))(0.0, ())

    monkeypatch.setattr(gpu, "_command", command)
    given = ["--only", "proofs", "--json", str(file), "--resume"]
    assert gpu.main(given) == 1
    assert [r["case"] for r in json.loads(file.read_text())["proofs"]["rows"]] == ["a"]
    assert gpu.main(given) == 0
    assert [r["case"] for r in json.loads(file.read_text())["proofs"]["rows"]] == ["a", "b"]
    assert gpu.main(given) == 0, "what is done is not done again"
    assert asked == [("proofs", []), ("proofs", ["a"])]
    capsys.readouterr()


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
        for part in PARTS.values():
            with pytest.raises(CannotRun, match="PyCUDA is not installed"):
                next(part.run(EVER))
    assert gpu.main(["--only", "proofs", "--seconds", "1", "--json", str(tmp_path / "found.json")]) == 1
    assert "proofs: 0 done, 0 wrong" in capsys.readouterr().out
    assert json.loads((tmp_path / "found.json").read_text())["proofs"]["ok"] is False


def test_every_case_is_a_task_on_the_gpu() -> None:
    texts = [*SMALL.values(), *(p.text for p in PEERS.values())]
    given = [(x, None) for x in texts] + list(COMPARED.values())
    with pretended():
        every = HEAD + COMPUTES + "".join(definition(f"t{n}", *x) for n, x in enumerate(given))
        tasks = td.loads(every, target="native-cuda")
        assert all(t.target.device for t in tasks.values())
        cases = (
            HEAD + OF_INSTRUCTIONS + "".join(definition(f"t{n}", c.text, c.space) for n, c in enumerate(CASES.values()))
        )
        assert len(td.loads(cases, target="native-cuda")) == len(CASES)
    assert len(tasks) == len(given)


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["wgmma, left factor in registers", "roles with registers", "look-back"])
def test_a_case_has_the_instructions_that_it_is_named_after(name: str) -> None:
    case = CASES[name]
    with pretended():
        assert found(task_of(case.text, OF_INSTRUCTIONS, case.space), case) is not None


@pytest.mark.corpus
def test_a_case_without_its_instructions_is_not_found() -> None:
    case = CASES["look-back"]
    missing = replace(case, has=(*case.has, "no such instruction"))
    with pretended():
        assert found(task_of(case.text, OF_INSTRUCTIONS, case.space), missing, 2) is None


def test_what_there_was_no_time_for_is_told() -> None:
    with pretended(), pytest.raises(CannotRun, match="there was no time for `matmul f32 0` and what comes after it"):
        next(PARTS["proofs"].run(Asked(0.0)))


def test_a_search_that_would_be_too_short_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", object())
    with pretended(), pytest.raises(CannotRun, match="no time for `matmul bf16 4096`"):
        next(PARTS["torch"].run(Asked(time.monotonic() + LEAST)))
