"""The stages of the bundle for a machine with a GPU, run dry: what they need is there, and each part writes what it finds.
The GPU is that of `fake/`, whose results are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import gpu_bundle, gpu_calibration

FOUND = {"env": ["instructions"], "cal": ["cal"], "proofs": ["proofs", "nvcc", "sanitizer"], "torch": ["torch"]}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    try:
        gpu_bundle.source(folder)
    except subprocess.CalledProcessError:
        pytest.skip("the project is no checkout of git")
    gpu_bundle.script(folder)
    assert gpu_calibration.main(["save", str(folder / "saved.json"), "--each", "1", "--only", "softmax"]) == 0
    return folder


def staged(bundle: Path, stage: str) -> subprocess.CompletedProcess[str]:
    there = {**os.environ, "DRY": "1", "PYTHON": sys.executable}
    command = ["sh", str(bundle / "device.sh"), stage, str(bundle / "out"), "600"]
    return subprocess.run(command, check=False, env=there, capture_output=True, text=True, timeout=900)


@pytest.mark.corpus
@pytest.mark.parametrize("stage", FOUND)
def test_each_stage_runs_dry(bundle: Path, stage: str) -> None:
    done = staged(bundle, stage)
    assert "Traceback" not in done.stderr
    found = json.loads((bundle / "out" / "gpu.json").read_text())
    assert set(FOUND[stage]) <= set(found), done.stderr
    assert done.returncode == int(not all(found[name]["ok"] for name in FOUND[stage]))
    for name in FOUND[stage]:
        assert found[name]["rows"] or found[name]["trouble"].startswith(("there is no", "torch", "ptxas"))


def test_another_stage_is_refused(bundle: Path) -> None:
    done = staged(bundle, "all")
    assert done.returncode == 2 and "there is no stage all" in done.stderr
