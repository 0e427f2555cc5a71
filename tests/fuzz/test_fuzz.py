"""Strange inputs end in findings; a long run is `make fuzz`."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from campaigns.fuzz import MEGABYTES, digest, fuzz, generate

SEEDS = Path(__file__).parent / "seeds"


def test_strange_inputs_end_in_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where inputs that break a rule are kept
    # In a process of its own: what other tests have held is not these inputs' memory.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        run = pool.submit(fuzz, ("bytes", "grammar"), 0, range(100)).result()
    assert run.ends.total() == 100
    assert not run.broken, run.ends
    assert len(run.ends) > 5  # the inputs get to different places
    assert run.megabytes < MEGABYTES


def test_a_number_names_an_input() -> None:
    assert generate("grammar", 3, 5) == generate("grammar", 3, 5)
    assert len({generate("bytes", 3, n) for n in range(50)}) > 40


@pytest.mark.parametrize(
    ("name", "text", "end"),
    [
        ("nothing", b"", "checked"),
        ("zero", b"\0", "E0102"),
        ("not UTF-8", b"\xff\xfe", "E0902"),
        ("CRLF", b"task t = m()\r\n", "E0227"),
        ("brackets", b"(" * 60_000, "E0101"),
        ("depth", b"module m(b) {" + b"(" * 30_000 + b"}", "E0107"),
        ("digits", b"task t = m(M=" + b"9" * 60_000 + b")", "E0106"),
        ("slashes", b"/" * 60_000, "checked"),
        ("quotes", b'"' * 60_000, "E0101"),
        ("path", b"use " + b"a." * 5_000 + b"b", "E0232"),
        ("names", b"use a.{" + b"b," * 5_000 + b"}", "E0232"),
        ("huge", b"compute c(X: f32[N]) -> Y: f32 { Y = sum[j] X[j] }\ntask t = c(N=9223372036854775807)", "task E0552"),
    ],
)  # fmt: skip
def test_extremes(name: str, text: bytes, end: str, tmp_path: Path) -> None:
    (tmp_path / "x.tsched").write_bytes(text)
    assert digest(tmp_path / "x.tsched") == end
