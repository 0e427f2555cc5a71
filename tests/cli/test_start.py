"""What a start loads. Times are no test's business (`python -m bench.startup` shows them); the modules behind them are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"numpy", "scipy", "llvmlite", "islpy", "lark", "rich", "msgspec", "psutil", "sqlite3", "importlib.metadata"}


def loaded(tmp_path: Path, *arguments: str) -> tuple[int, set[str]]:
    """The exit status of the command, and the modules that it loaded."""
    code = (
        "import sys\n"
        "from tensorc_dsl.cli.main import main\n"
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


def test_lark_is_there_for_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "wrong.tsched").write_text("task = = x")
    status, modules = loaded(tmp_path, "check", "wrong.tsched")
    assert status == 1
    assert "lark" in modules
    assert not (HEAVY - {"lark"}) & modules - {"importlib.metadata"}
