"""The playground's editor is what its pinned packages give, with their licences."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.editors.oracle import ROOT

FOLDER = ROOT / "editors" / "playground"
PAGE = ROOT / "tensorc_dsl" / "faces" / "playground" / "page"
BUILT = ("codemirror.js", "codemirror.LICENSES.txt")


def test_it_is_of_the_pinned_packages() -> None:
    head = (PAGE / "codemirror.js").read_text(encoding="utf-8").partition("\n")[0]
    named = dict(re.findall(r"(\S+) (\d[\d.]*)[,:]", head))
    locked = json.loads((FOLDER / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert len(named) > 8
    assert {name: locked[f"node_modules/{name}"]["version"] for name in named} == named
    licences = (PAGE / "codemirror.LICENSES.txt").read_text(encoding="utf-8")
    assert re.findall(r"^(\S+) (\d[\d.]*) \(MIT\)$", licences, re.MULTILINE) == list(named.items())
    assert licences.count("Permission is hereby granted, free of charge") == len(named)


def test_no_registry_is_named() -> None:
    packages = json.loads((FOLDER / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert [name for name, p in packages.items() if "resolved" in p] == []
    assert all("integrity" in p for name, p in packages.items() if name)


def test_building_it_again_gives_the_same(tmp_path: Path) -> None:
    """`npm ci --ignore-scripts --prefix editors/playground` installs what it needs."""
    if shutil.which("node") is None or not (FOLDER / "node_modules" / "esbuild").is_dir():
        pytest.skip("esbuild is not installed in editors/playground")
    subprocess.run(["node", str(FOLDER / "build.js"), str(tmp_path)], check=True, timeout=120)
    for name in BUILT:
        assert (tmp_path / name).read_bytes() == (PAGE / name).read_bytes()
