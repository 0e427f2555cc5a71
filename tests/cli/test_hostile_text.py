"""Foreign text cannot control the terminal: hostile text in every place, through every command."""

from __future__ import annotations

import ast
import json
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote_to_bytes

import click
import click.testing
import pytest
from click.testing import CliRunner, Result

import tensorc_dsl
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.program import Program
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key

TEXT = "\x1b[31m\x1b]0;t\x07\x08\x9b1m\x7f\u202e\u2066\u200b\u2028\U000e0041[red]"
"""Colours, titles, bells, the other way to begin an escape, turns of writing, and what shows nothing; for Rich, markup."""

NAME = f"{TEXT}\r\nerror[E0000]: forged\udcff"
"""A name may hold line ends, too, and bytes that are no UTF-8."""

FILE = f"""\
/// {TEXT}
compute copy(A: f32[M]) -> B: f32[M] {{
    B[i] = A[i] // {TEXT}
}}
schedule marked for copy {{
    annotate(B, "{TEXT}", "{TEXT}") // {TEXT}
    let way ~ sample_categorical(["{TEXT}", "a"])
    annotate(B, "way", way)
}}
schedule never for copy {{
    vectorize(B.loops[0]); annotate(B, "{TEXT}", 1); vectorize(B.loops[0])
}}
task t = copy(M=64) with marked
task stuck = copy(M=64) with never
"""

PROGRAMS = f"""\
program a(A: f32[8]) {{ for i in 8 {{ block b {{ spatial v in 8 = i; A[v] = 1.0 @("{TEXT}", 1) }} }} }}
"""

WRONG = f'''\
compute copy(A: f32[M]) -> B: f32[M] {{ B[i] = A[i] }} // {TEXT}
schedule s for copy {{ annotate(B, "{TEXT}", nowhere) }} // {TEXT}
/* {TEXT} */
task t = copy(M="{TEXT}")
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a hostile file of a hostile name; standard output is a terminal, without colours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TSCHED_PATH", f"{tmp_path}/{NAME}")
    is_output = lambda stream: stream.name == "<stdout>"  # noqa: E731
    monkeypatch.setattr(click.testing._NamedTextIOWrapper, "isatty", is_output, raising=False)
    Path(f"{NAME}.tsched").write_text(FILE, encoding="utf-8")
    return tmp_path


def call(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=text)


def require_harmless(output: str) -> None:
    hidden = {ch for ch in output if unicodedata.category(ch) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n", "\t"}
    assert not hidden, f"{[hex(ord(ch)) for ch in hidden]} in {output!r}"
    assert not any(line.startswith("error[E0000]") for line in output.splitlines()), output


F = f"{NAME}.tsched"

COMMANDS: list[Sequence[str]] = [
    ("check", F),
    ("check", F, "--expand"),
    ("check", f"{NAME}/none"),
    ("check", f"{NAME}.d"),
    ("check", "wrong.tsched"),
    ("check", f"{NAME}.wrong.tsched"),
    ("check", f"{NAME}.wrong.tsched", "--output-format", "json"),
    ("check", f"{NAME}.wrong.tsched", "--output-format", "sarif"),
    ("check", f"{NAME}.wrong.tsched", "--output-format", "github"),
    ("check", "user.tsched"),
    ("check", f"{NAME}.bytes.tsched"),
    ("fmt", F, "--diff"),
    ("fmt", F, "--check"),
    ("fmt", F),
    ("fmt", "-"),
    ("fmt", f"{NAME}.wrong.tsched"),
    *(("show", F, "copy", "--stage", stage) for stage in ("ast",)),
    *(("show", F, "t", "--stage", stage) for stage in ("ir", "space", "trace", "lowered", "llvm", "asm")),
    ("show", F, "t", "--scheduled"),
    ("show", F, NAME, "--stage", "ast"),
    ("show", F, "t", "--stage", NAME),
    ("sample", F, "t"),
    ("sample", F, "stuck"),
    ("sample", F, NAME),
    ("sample", F, "t", "--condition", f"{NAME}=1"),
    ("sample", F, "t", "--condition", f"way={NAME}"),
    ("sample", F, "t", "--block", NAME),
    ("sample", F, "t", "--target", NAME),
    ("worker", NAME),
    ("worker", "tcp://127.0.0.1:1", "--token", NAME),
    ("workers", NAME),
    ("workers", "tcp://127.0.0.1:1", "--token", NAME),
    ("sample", F, "t", "--mcpu", NAME),
    ("sample", F, "t", "--replay", NAME),
    ("sample", F, "t", "--seed", NAME),
    ("sample", F, "t", NAME),
    ("sample", F, "t", f"--{NAME}"),
    ("lsp", NAME),
    ("serve", NAME),
    ("verify", F),
    ("verify", F, "t"),
    ("verify", F, "t", "--output-format", "json"),
    ("verify", F, NAME),
    ("verify", f"{NAME}.programs.tsched"),
    ("compile", F, "t", "--emit", "llvm"),
    ("compile", F, "t", "--emit", "asm", "--seed", "0"),
    ("compile", F, "t", "--emit", "header", "--seed", "0"),
    ("compile", F, "t", "--emit", "obj", "--seed", "0", "-o", f"{NAME}/x.o"),
    ("run", F, NAME),
    ("run", F, "t", "--records", f"{F}/x"),
    ("run", F, "t", "--records", F),
    ("replay", F, "t", NAME),
    ("replay", F, "t", F),
    ("tune", F, "t", "--strategy", NAME),
    ("tune", F, "t", "--output", f"{NAME}/x"),
    ("tune", F, "stuck", "--trials", "1", "--output", NAME),
    ("tune", F, "t", "--weight", f"{NAME}=1"),
    ("tune", F, "t", "--budget", NAME),
    ("tune", F, NAME, NAME),
    ("db", "list", "--task", NAME),
    ("db", "best", "--records", NAME),
    ("db", "show", "1", "--records", F),
    ("db", "export", "--records", NAME),
    ("db", "export", "--records", F),
    ("db", "import", NAME),
    ("db", "import", f"{NAME}.bytes.tsched"),
    ("db", "merge", NAME),
    ("db", "merge", F),
    ("db", "prune", "--keep", "1", "--records", NAME),
    ("db", "verify", F, NAME),
    ("profile", F),
    ("profile", F, NAME),
    ("compare", F, NAME),
    ("compare", F, F, "--set", NAME),
    ("importance", F, NAME),
    ("importance", F, "t"),
    ("importance", F, "t", "--records", NAME),
    ("report", F, NAME),
    ("report", F, "t", NAME),
    ("report", F, "t", "--output", NAME),
    ("db", NAME),
    ("module", "list"),
    ("-I", f"{NAME}.d", "module", "list"),
    ("-I", NAME, "module", "list"),
    ("module", "which", NAME),
    ("module", "new", NAME),
    ("module", "new", "fine", "--folder", NAME),
    ("module", NAME),
    ("explain", NAME),
    ("completion", NAME),
    (NAME,),
    (f"--{NAME}",),
]


@pytest.mark.corpus
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(c).replace(NAME, "NAME"))
def test_every_command_with_hostile_text(command: Sequence[str]) -> None:
    Path("wrong.tsched").write_text(WRONG, encoding="utf-8")
    Path(f"{NAME}.wrong.tsched").write_text(WRONG, encoding="utf-8")
    Path(f"{NAME}.programs.tsched").write_text(PROGRAMS, encoding="utf-8")
    Path(f"{NAME}.bytes.tsched").write_bytes(b"\x1b[31m\xff")
    Path("user.tsched").write_text("use nowhere.x\n", encoding="utf-8")
    Path(f"{NAME}.d").mkdir()
    Path(f"{NAME}.d", "tiles.tsched").write_text(f"/// {TEXT}\nmodule m(b: Block) {{ parallel(b.loops[0]) }}\n")
    Path(f"{NAME}.d", "broken.tsched").write_text("module m(")
    result = call(*command, text=FILE)
    assert result.output
    assert result.exit_code != 4, result.output
    require_harmless(result.output)


def test_every_command_is_tried() -> None:
    names = {c for command in COMMANDS for c in command}
    assert names >= set(main.list_commands(click.Context(main)))


def failing(message: str) -> object:
    def measure(_self: object, programs: Sequence[Program], _best: float | None) -> Iterator[Outcome]:
        yield from (Outcome(Status.CRASH, message=message) for _ in programs)

    return measure


def test_what_children_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalRunner, "measure", failing(f"said {NAME}"))
    for command in (
        ("tune", F, "t", "--trials", "2", "--output", NAME),
        ("run", F, "t"),
        ("replay", F, "t", "s.tsched"),
    ):
        Path("s.tsched").write_text('schedule s for copy { annotate(B, "x", 1) }')
        result = call(*command)
        assert "said " in result.stderr
        assert "[red]" in result.stderr
        require_harmless(result.output)


def test_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: object) -> None:
        raise RuntimeError(f"broken {NAME}")

    monkeypatch.setattr(Task, "check", broken)
    for debug in ((), ("--debug",)):
        result = call(*debug, "check", F, "--expand")
        assert (result.exit_code, "broken" in result.stderr) == (4, True)
        require_harmless(result.output)


def test_what_is_recorded(folder: Path) -> None:
    task = tensorc_dsl.load(F)["t"]
    keys = program_key(task.program), target_key(task.target, task.threads)
    with Database.open(folder / NAME) as database:
        for seconds, trace in ((1.0, f"schedule s for copy {{ gone_{TEXT}() }}"), (2.0, f"// {TEXT}\n{TEXT}")):
            database.add(Trial(*keys, TEXT, "random", 0, 0, "ok", {}, trace, trace, seconds))
    result = call("run", F, "t", "--records", NAME)
    assert result.exit_code == 0, result.output
    assert "warning[W0701]: 2 records of `t`" in result.stderr
    require_harmless(result.output)


def test_json_holds_what_there_is() -> None:
    Path(f"{NAME}.tsched").write_text(WRONG, encoding="utf-8")
    result = call("check", F, "--output-format", "json")
    assert result.stdout.isascii()
    found = json.loads(result.stdout)
    assert (found["files"], found["findings"][0]["file"]) == ([F], F)
    log = json.loads(call("check", F, "--output-format", "sarif").stdout)
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert unquote_to_bytes(place["artifactLocation"]["uri"]) == os.fsencode(F)


def test_a_pipe_gets_the_text_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click.testing._NamedTextIOWrapper, "isatty", lambda _: False)
    formatted = call("fmt", "-", text=FILE).stdout
    assert f"// {TEXT}\n" in formatted
    assert call("fmt", "-", text=formatted).stdout == formatted


def test_colours_are_ours_alone() -> None:
    result = call("--color", "always", "check", f"{NAME}/none")
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[1;31m", "\x1b[36m"):
        assert code in result.stderr
        result.stderr_bytes = result.stderr_bytes.replace(code.encode(), b"")
    require_harmless(result.stderr)


BESIDE = {"backend/llvm/known.py", "faces/report/progress.py", "faces/report/live.py"}
"""A program of its own, whose parent reads names that LLVM has; the question whether this is a notebook; the line of a
search, which is spelled out."""


def test_there_is_one_door() -> None:
    package = Path(tensorc_dsl.__file__).parent
    found = set[str]()
    for file in package.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if not re.search(r"\b(print|Console|echo|secho|write)\b", text):
            continue  # to parse all of the package takes a second
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            match node.func:
                case ast.Name(id=("print" | "Console")) | ast.Attribute(attr=("echo" | "secho" | "Console")):
                    found.add(file.relative_to(package).as_posix())
                case ast.Attribute(attr="write", value=ast.Attribute(attr=("stdout" | "stderr" | "buffer"))):
                    found.add(file.relative_to(package).as_posix())
                case _:
                    pass
    assert found == {"faces/report/terminal.py"} | BESIDE
