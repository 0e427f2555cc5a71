"""`show --stage space`: the outcome of each rule, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tensorc_dsl.faces.cli.main import main

FILE = """
compute chain(A: f32[M, N]) -> Y: f32[M] {
    let E[i, j] = exp(A[i, j])
    Y[i] = sum[j] E[i, j]
}

module inline(b: Block, most: int = 1)
when not b.is_output and (b.is_scan or len(b.consumers) == most)
{
    either { compute_inline(b) } or {}
}

module tile(b: Block) {
    let factors ~ sample_perfect_tile(b.loops[-1], parts=2) := [3, 4]
    split(b.loops[-1], factors)
    limit(root, [0, 16])
}

module limit(p: Program, steps = [0]) {
    let step ~ sample_categorical(steps)
    annotate(p, "unroll.max_step", step)
}

space rules for llvm {
    inline(most=2)
    inline
    tile
}

schedule by_hand for chain { inline(Y, 3); inline(E) }

task drawn = chain(M=4, N=12) with rules
task written = chain(M=4, N=12) with by_hand
"""

DRAWN = """\
space rules for chain

inline(most=2)
    Y: not applied, `b.is_output` is true
    E: not applied, `b.is_scan` is false, `len(b.consumers) == most` is false: `len(b.consumers)` is 1, `most` is 2

inline
    Y: not applied, `b.is_output` is true
    E: applied
        branch = 0, of 2: a branch: 0, 1

tile
    Y: applied
        factors = [3, 4], pinned, of 6: 2 factors with product 12, the last one of 1, 2, 3, 4, 6, 12
        limit(the program): applied
            step = 0, of 2: one of 0, 16
"""

WRITTEN = """\
schedule by_hand for chain

by_hand
    chain: applied

inline(Y, 3)
    Y: not applied, `b.is_output` is true

inline(E)
    E: applied
        branch = 0, of 2: a branch: 0, 1
"""


@pytest.mark.parametrize(("task", "shown"), [("drawn", DRAWN), ("written", WRITTEN)])
def test_rules_blocks_and_reasons(task: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.tsched").write_text(FILE)
    result = CliRunner().invoke(main, ["show", "rules.tsched", task, "--stage", "space", "--condition", "branch=0"])
    assert (result.exit_code, result.stdout) == (0, shown)
