"""Tests of versions of modules: changed words change the version; layout, comments and descriptions do not."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensorc_dsl
from tensorc_dsl.interp.space import others, versions

TILES = """\
/// What it does.
module tile(b: Block, size = 8) when b.has_reuse {
    let [i, i1] = split(b.loops[0], [_, size])   // a comment
    fast(i)
}
module fast(l: Loop) { parallel(l) }
module never(b: Block) when not b.has_reuse { vectorize(b.loops[0]) }
"""

FILE = """\
use tiles
compute product(A: f32[M, K], B: f32[K]) -> C: f32[M] { C[i] = sum[k] A[i, k] * B[k] }
space s for llvm { tile; never }
task t = product(M=64, K=64) with s
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.tsched").write_text(FILE)


def made(text: str) -> dict[str, str]:
    """The versions of what took part in a schedule of the task."""
    Path("tiles.tsched").write_text(text)
    task = tensorc_dsl.load("f.tsched", threads=1)["t"]
    return dict(versions(task.space, task.sample(0).modules))


def test_what_took_part_is_known() -> None:
    assert sorted(made(TILES)) == ["module tiles.fast", "module tiles.tile", "space s"]


@pytest.mark.parametrize(
    "text",
    [
        TILES,
        TILES.replace("What it does", "What it does not"),
        TILES.replace("// a comment", ""),
        TILES.replace("   // a comment\n    fast(i)", "; fast(i)"),
        TILES.replace("not b.has_reuse { vec", "not b.has_reuse { unroll(b.loops[0]); vec"),
    ],
)
def test_what_says_the_same_is_the_same_version(text: str) -> None:
    assert others(made(TILES), made(text)) == ()


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (TILES.replace("size = 8", "size = 4"), ("module tiles.tile",)),
        (TILES.replace("when b.has_reuse", "when b.has_reuse and 1 < 2"), ("module tiles.tile",)),
        (TILES.replace("{ parallel(l) }", '{ parallel(l); annotate(l, "x", 1) }'), ("module tiles.fast",)),
    ],
)
def test_other_words_are_another_version(text: str, changed: tuple[str, ...]) -> None:
    assert others(made(TILES), made(text)) == changed


def test_a_rule_that_was_refused_took_no_part() -> None:
    text = TILES.replace("fast(i)", "fast(i); parallel(i)")
    assert sorted(made(text)) == ["space s"]


def test_another_list_of_rules_is_another_version_of_the_space() -> None:
    before = made(TILES)
    Path("f.tsched").write_text(FILE.replace("tile; never", "tile(size=16); never"))
    assert others(before, made(TILES)) == ("space s",)
