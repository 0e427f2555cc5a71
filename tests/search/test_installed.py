"""Strategies of other packages: found by name, loaded when they are chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.tuning.search.strategy import strategies, strategy_of

FIRST = '''
from tensorc_dsl.tuning.search.strategy import Factory
class First:
    """What the space draws first, and nothing else."""
    def __init__(self, setting): self.explorer, self.done = setting.explorer, False
    def propose(self, count, left):
        found = None if self.done else self.explorer.draw()
        self.done = True
        return [] if found is None else [found]
    def tell(self, trace, outcome): pass
STRATEGY: Factory = First
'''
TASK = """\
compute twice(A: f32[M]) -> B: f32[M] { B[i] = A[i] * 2.0 }
schedule tiled for twice {
    let n ~ sample_perfect_tile(B.loops[0], parts=2)
    split(B.loops[0], n)
}
task small = twice(M=64)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path / "site"
    info = site / "firsts-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: firsts\nVersion: 1.0\n")
    names = "first = tsched_firsts\nrandom = tsched_firsts\nbroken = tsched_firsts.missing\n"
    (info / "entry_points.txt").write_text(f"[tensorc_dsl.strategies]\n{names}")
    (site / "tsched_firsts.py").write_text(FIRST)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    Path("small.tsched").write_text(TASK)
    return site


def call(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.output


def test_they_are_listed_and_ours_cannot_be_replaced(package: Path) -> None:
    assert strategies() == ("bayes", "broken", "descent", "evolutionary", "first", "index-gp", "random")
    status, listed = call("tune", "--strategy", "help")
    rows = [line.split(None, 1) for line in listed.splitlines() if line[0] != " "]
    assert (status, [row[0] for row in rows]) == (0, list(strategies()))
    said = {row[0]: row[1] for row in rows if row[1:]}
    assert said["random"] == "draws from the prior, each program once."
    assert said["broken"].startswith("`broken` of `tensorc_dsl.strategies` cannot be loaded")
    assert strategy_of("random").__module__ == "tensorc_dsl.tuning.search.strategies.random"
    assert strategy_of("first").__module__ == "tsched_firsts"


def test_a_misspelt_one_is_told_the_nearest(package: Path) -> None:
    status, said = call("tune", "small.tsched", "small", "--strategy", "frist")
    assert status == 2
    assert "there is no strategy 'frist': did you mean `first`?" in said


def test_one_searches(package: Path) -> None:
    status, said = call(
        "tune", "small.tsched", "small", "--strategy", "first", "--trials", "5", "--records", "r.sqlite"
    )
    assert status == 0, said
    assert "; 1 trial, first, seed 0" in Path("small.best.tsched").read_text()
