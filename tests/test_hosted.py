"""The configuration for a host of the repository: it runs targets of the Makefile, on the supported systems."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(p for p in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if p.name != "config.yml")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps() -> list[dict[str, Any]]:
    return [step for path in WORKFLOWS for job in read(path)["jobs"].values() for step in job["steps"]]


def test_nothing_of_others_runs_but_checkout_python_and_the_upload_of_findings() -> None:
    used = {step["uses"].partition("@")[0] for step in steps() if "uses" in step}
    assert used == {"actions/checkout", "actions/setup-python", "actions/upload-artifact"}


def test_workflows_run_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    run = {name for step in steps() for name in re.findall(r"\bmake (\w+)", step.get("run", ""))}
    assert {"test", "coverage", "site"} <= run <= targets


def matrices() -> list[dict[str, Any]]:
    return [job["strategy"]["matrix"] for path in WORKFLOWS for job in read(path)["jobs"].values() if "strategy" in job]


def test_every_campaign_of_the_makefile_runs_each_night() -> None:
    """With a seed, and with arguments that it has."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    section = text.partition("## Search for mistakes")[2].partition("\n## ")[0]
    (matrix,) = [m for m in matrices() if "campaign" in m]
    runs = {words[0]: words[1:] for words in map(str.split, matrix["campaign"])}
    assert list(runs) == re.findall(r"^([a-z]+):.*##", section, re.MULTILINE)
    for name, arguments in runs.items():
        (recipe,) = re.findall(rf"^{name}:.*\n((?:\t.*\n)+)", section, re.MULTILINE)
        named = set(re.findall(r"\$\((?:filter-out 0,\$\()?([A-Z]+)\)", recipe))
        assert {"SEED", *(a.partition("=")[0] for a in arguments)} <= named, name


def rounds() -> str:
    """The commands of a night that run a campaign."""
    (step,) = [s for s in steps() if s.get("name") == "Rounds"]
    return step["run"]


@pytest.mark.parametrize(("only", "status", "ran"), [("7", 0, 1), ("13", 1, 1), ("", 3, 3)])
def test_a_night_keeps_the_rounds_that_fail(only: str, status: int, ran: int, tmp_path: Path) -> None:
    """By a `make` that fails for each seed but 7: a seed is one round, and a night ends with the third finding."""
    fails = 'echo "$@"; case "$*" in *SEED=7\\ *) exit 0;; esac; exit 2'
    (tmp_path / "make").write_text(f"#!{shutil.which('bash')}\n{fails}\n")
    (tmp_path / "make").chmod(0o755)
    done = subprocess.run(
        ["bash", "-e", "-c", rounds()],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CAMPAIGN": "soak COUNT=1", "ONLY": only,
             "FOR": "3600", "LIMIT": "60s"},
        capture_output=True,
        text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    commands = re.findall(r"^make (soak COUNT=1 SEED=\d+ THREADS=4 JOBS=4)$", done.stdout, re.MULTILINE)
    assert len(commands) == len(set(commands)) == ran
    logs = sorted((tmp_path / "build" / "night").glob("finding-*.log"))
    assert [log.read_text().splitlines() for log in logs] == [[f"make {c}", c] for c in commands if status]


def test_every_supported_python_is_tested_on_both_processors() -> None:
    (matrix,) = [m for m in matrices() if "campaign" not in m]
    said = [c.rpartition(" :: ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert matrix["python"] == said
    assert PROJECT["requires-python"] == f">={said[0]}"
    assert {name.endswith("-arm") for name in matrix["machine"]} == {False, True}


def test_hooks_are_tools_of_the_environment() -> None:
    repositories = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert [r["repo"] for r in repositories] == ["local"]
    for hook in repositories[0]["hooks"]:
        assert hook["entry"].startswith(".venv/bin/") and hook["language"] == "system"
    assert {"ruff", "ruff-format", "pyright"} <= {hook["id"] for hook in repositories[0]["hooks"]}


@pytest.mark.parametrize("path", FORMS, ids=lambda p: p.stem)
def test_an_issue_form_has_what_forms_need(path: Path) -> None:
    """As GitHub's schema of forms has it: a name, a description, and fields with different names and a label each."""
    form = read(path)
    assert form["name"] and form["description"]
    fields = [f for f in form["body"] if f["type"] != "markdown"]
    names = [f["id"] for f in fields]
    assert names and len(set(names)) == len(names)
    assert all(f["type"] in ("input", "textarea") and f["attributes"]["label"] for f in fields)


# --- the command that installs what tests want -----------------------------------------------------------------------

STUBS = {
    "timeout": 'echo "limit $2" >> "$LOG"; shift 2; LIMITED=1 exec "$@"',
    "apt-get": '[ -n "${LIMITED-}" ] && echo "apt-get ${*: -1}" >> "$LOG"; [ "${*: -1}" != emacs-nox ]',
    "npm": '[ -n "${LIMITED-}" ] && echo "npm $1" >> "$LOG"; exit 1',
    "make": 'echo "make $*" >> "$LOG"',
    "id": "echo 0",
    "gcc": "",
}


@pytest.mark.skipif(not (ROOT / ".ci" / "run").exists(), reason="a distribution has no .ci")
def test_what_cannot_be_installed_is_named_and_keeps_no_test_away(tmp_path: Path) -> None:
    for name, text in STUBS.items():
        (tmp_path / name).write_text(f"#!{shutil.which('bash')}\n{text}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("bash", "env", "dirname"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    log = tmp_path / "log"
    done = subprocess.run(
        [ROOT / ".ci" / "run"],
        check=False,
        env={"PATH": str(tmp_path), "LOG": str(log)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    programs = [f"the programs of editors/{folder} could not be installed" for folder in ("vscode", "playground")]
    said = ["emacs-nox could not be installed", *programs]
    assert done.stderr.splitlines() == said
    lines = log.read_text().splitlines()
    limits = [int(line.removeprefix("limit ")) for line in lines if line.startswith("limit")]
    assert len(limits) == 7 and all(0 < seconds <= 300 for seconds in limits)
    rest = [line for line in lines if not line.startswith("limit")]
    assert rest == [
        "apt-get update",
        *(f"apt-get {p}" for p in ("chromium", "vim", "neovim", "emacs-nox")),
        "npm ci",
        "npm ci",
        "make test",
    ]
