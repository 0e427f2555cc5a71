"""The wheel and the source archive contain everything that the package needs, wherever it is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

FIND = "from tensorc_dsl.base import resources as r; print(r.__file__); print(len(r.grammar_text())); print(r.stdlib_root())"


def python(*arguments: str, cwd: Path, path: Path | None = None) -> str:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, *arguments], check=False, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that was made from it."""
    out = tmp_path_factory.mktemp("dist")
    python("-m", "hatchling", "build", "-t", "sdist", "-d", str(out), cwd=ROOT)
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(out / "source", filter="data")
    (unpacked,) = (out / "source").iterdir()
    python("-m", "hatchling", "build", "-t", "wheel", "-d", str(out), cwd=unpacked)
    return out


def files_below(*folders: str) -> set[str]:
    return {
        p.relative_to(ROOT).as_posix()
        for folder in folders
        for p in (ROOT / folder).rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }


def test_the_wheel_holds_the_package_the_grammar_and_the_library(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    shipped = files_below("grammar", "stdlib", "docs/errors") | {"docs/glossary.md"}
    data = {f"tensorc_dsl/_data/{n.removeprefix('docs/')}" for n in shipped}
    assert names == files_below("tensorc_dsl") | data
    assert "tensorc_dsl/py.typed" in names


def test_the_archive_holds_what_the_tests_need(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {n.partition("/")[2] for n in tar.getnames()}
    assert names >= files_below("tensorc_dsl", "grammar", "stdlib", "examples", "tests") | {"Makefile", "LICENSE"}


def test_an_installed_wheel_finds_its_data(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    module, length, stdlib = python("-c", FIND, cwd=tmp_path, path=site).splitlines()
    assert Path(module).is_relative_to(site)
    assert int(length) == len((ROOT / "grammar" / "tsched.lark").read_text(encoding="utf-8"))
    assert Path(stdlib) == (site / "tensorc_dsl" / "_data" / "stdlib").resolve()
    assert Path(stdlib).is_dir()


def test_a_checkout_finds_its_data(tmp_path: Path) -> None:
    module, length, stdlib = python("-c", FIND, cwd=tmp_path, path=ROOT).splitlines()
    assert Path(module).is_relative_to(ROOT)
    assert int(length) > 0
    assert Path(stdlib) == ROOT / "stdlib"


def test_the_wheel_has_the_command_and_the_licence(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    names = {n.split(".dist-info/")[1]: n for n in archive.namelist() if ".dist-info/" in n}
    assert b"tensorc-dsl = tensorc_dsl.faces.cli.main:main" in archive.read(names["entry_points.txt"])
    assert b"Apache License" in archive.read(names["licenses/LICENSE"])
    bundled = archive.read(names["licenses/tensorc_dsl/faces/playground/page/codemirror.LICENSES.txt"])
    assert b"@codemirror/view" in bundled and b"License-Expression: Apache-2.0 AND MIT" in archive.read(
        names["METADATA"]
    )


def test_the_page_of_the_package_links_to_nothing_beside_it(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    page = archive.read(name).decode()
    assert "\nDescription-Content-Type: text/markdown\n" in page
    assert "pip install tensorc-dsl" in page and page.count("\n## ") == (ROOT / "README.md").read_text().count("\n## ")
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    assert all(
        "://" in target
        for target in re.findall(r"\]\(([^)]*)\)|^\[[^]]+\]: (\S+)", prose)
        for target in target
        if target
    )
    named = re.findall(r" \(`([^`]+)`\)", prose)
    assert {"docs/tour.md", "LICENSE", "CHANGELOG.md"} <= set(named)
    with tarfile.open(next(built.glob("*.tar.gz"))) as tar:
        inside = {n.partition("/")[2] for n in tar.getnames()}
    assert {n for n in named if "/" in n or n.isupper() or n.endswith(".md")} <= inside


def test_every_dependency_is_pinned_and_no_registry_is_named() -> None:
    text = (ROOT / "constraints.txt").read_text()
    pins = dict(line.split("==") for line in text.splitlines() if line and not line.startswith("#"))
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", version) for version in pins.values())
    known = {normal(name) for name in pins}
    wanted = [*PROJECT["dependencies"], "hatchling", "pycuda"]
    wanted += [name for extra in ("dev", "docs") for name in PROJECT["optional-dependencies"][extra]]
    assert {normal(re.split(r"[\[><=~ ]", w)[0]) for w in wanted} <= known
    assert "://" not in text


def test_the_changes_begin_with_what_is_unreleased_and_this_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased, version, *_ = re.findall(r"^## (.*)$", changes, re.MULTILINE)
    assert unreleased == "Unreleased"
    assert re.fullmatch(rf"{re.escape(PROJECT['version'])} - \d{{4}}-\d\d-\d\d", version)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported_by(statement: str, cwd: Path) -> Sequence[str]:
    return python("-c", f"{statement}\nimport sys\nprint(*sys.modules)", cwd=cwd, path=ROOT).split()


@pytest.mark.parametrize(
    "statement",
    [
        "import tensorc_dsl",
        "from tensorc_dsl.faces.cli.main import main; main(['tune', '--help'], standalone_mode=False)",
    ],
)
def test_a_start_loads_nothing_heavy(statement: str, tmp_path: Path) -> None:
    heavy = {"numpy", "scipy", "llvmlite", "islpy", "lark", "rich"}
    assert heavy.isdisjoint(imported_by(statement, tmp_path))
