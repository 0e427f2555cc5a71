"""Tasks that this machine cannot check are reported before any process is started."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.expr import index
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.measure import local
from tensorc_dsl.tuning.measure.local import LocalRunner, memory_needed
from tests import programs


def test_the_estimate_counts_every_element_of_every_buffer() -> None:
    assert memory_needed(programs.matmul(3, 5, 7)) == (3 * 5 + 5 * 7 + 3 * 7) * (3 * 4 + 4 * 8)


def test_a_task_larger_than_the_memory_is_refused() -> None:
    small = programs.matmul(3, 5, 7)
    wide = Buffer("A", small.params[0].dtype, (index(1 << 30), index(1 << 20)))
    huge = Program("huge", (wide, *small.params[1:]), (), small.body)
    with pytest.raises(TschedError, match="E0706"):
        LocalRunner(huge, Target(), threads=1)


def test_a_reference_that_takes_too_long_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "PREPARE_SECONDS", 0.0)
    program = programs.matmul(64, 64, 64)
    with LocalRunner(program, Target(), threads=1, builders=1) as runner, pytest.raises(TschedError, match="E0707"):
        list(runner.measure([program], None))


def test_what_is_too_large_to_run_can_be_proved_and_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the repair says. Replaying it, which it said once, is running it."""
    monkeypatch.chdir(tmp_path)
    text = "use std.cpu\nuse std.ops.{matmul}\ntask huge = matmul(M=1048576, N=1048576, K=1048576)\n"
    Path("huge.tsched").write_text(text)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))

    Path("s.tsched").write_text(call("sample", "huge.tsched").stdout)
    refused = call("replay", "huge.tsched", "s.tsched")
    assert (refused.exit_code, "error[E0706]" in refused.stderr) == (1, True)
    assert "`verify` and `compile --replay`" in refused.stderr
    assert call("verify", "huge.tsched", "s.tsched").exit_code == 0
    assert call("compile", "huge.tsched", "--replay", "s.tsched", "--emit", "obj", "-o", "made").exit_code == 0
    assert list(Path().glob("made*"))
