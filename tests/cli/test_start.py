"""The modules that a start loads. No test measures time; `python -m bench.startup` does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.startup import long_text
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"numpy", "scipy", "llvmlite", "islpy", "lark", "rich", "msgspec", "psutil", "sqlite3", "importlib.metadata"}


def loaded(tmp_path: Path, *arguments: str) -> tuple[int, set[str]]:
    """The exit status of the command, and the modules that it loaded."""
    code = (
        "import sys\n"
        "from tensorc_dsl.faces.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as e:\n    status = e.code\n"
        "print(status, *sys.modules, file=open('modules', 'w'))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TSCHED_PATH"}
    subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, cwd=tmp_path, env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True, timeout=120,
    )  # fmt: skip
    status, *modules = (tmp_path / "modules").read_text().split()
    return int(status), set(modules)


@pytest.mark.parametrize("name", ["matmul", "conv2d", "softmax"])
def test_a_check_loads_nothing_heavy(name: str, tmp_path: Path) -> None:
    file = str(ROOT / "examples" / f"{name}.tsched")
    assert loaded(tmp_path, "check", file)[0] == 0  # the first one may have to make the tables of the grammar
    status, modules = loaded(tmp_path, "check", file)
    assert status == 0
    assert "tensorc_dsl.check.scope" in modules
    assert not HEAVY & modules


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("task = = x", 1),
        ("reducer r(a, b) = erf(a + b) identity 0.0", 1),
        ("reducer r(a, b) = a + b identity 0", 0),
    ],
)
def test_what_is_wrong_and_what_is_tried_load_little(text: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "x.tsched").write_text(text)
    assert loaded(tmp_path, "check", "x.tsched")[0] == status
    ended, modules = loaded(tmp_path, "check", "x.tsched")
    assert ended == status
    allowed = {"importlib.metadata", *(["numpy"] if "reducer" in text else []), *(["scipy"] if "erf" in text else [])}
    assert not (HEAVY - allowed) & modules


def test_what_fits_no_model_loads_no_part_of_scipy(tmp_path: Path) -> None:
    status, modules = loaded(tmp_path, "sample", str(ROOT / "examples" / "softmax.tsched"))
    assert status == 0
    assert "tensorc_dsl.tuning.search.gp" in modules
    assert not {"scipy.linalg", "scipy.optimize", "scipy.special"} & modules


@pytest.mark.corpus
def test_the_long_file_of_the_benchmark_is_right(tmp_path: Path) -> None:
    assert load_source(Source("long", long_text(1000))).diagnostics == ()
