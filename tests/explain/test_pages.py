"""Every error code has a page whose example gives that code, and `tests/bad` has its message.

The example of a page is the last block above `## Repair` that fails: a `tsched` file, the commands of a `console`, a
`python` program, or the commands of an `sh`, which fail on a machine in trouble only; `FAULTS` makes the trouble.
`tests/bad/CODE.expected`, of commands `CODE.console`, has what is printed; the example itself stands in the page alone.
The rest of a page runs as other pages do, so repairs pass.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import filelock
import pytest

from docs.generate.errors import raised
from tensorc_dsl.backend import protocol
from tensorc_dsl.backend.cuda import compiled
from tensorc_dsl.backend.once import Lowered
from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, render
from tensorc_dsl.base.extensions import BACKENDS, STRATEGIES
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file
from tensorc_dsl.faces.api import load, searching
from tensorc_dsl.faces.api.schedules import sample
from tensorc_dsl.faces.api.tasks import TaskFile
from tensorc_dsl.faces.cli.commands import tune
from tensorc_dsl.faces.packages import Resolver
from tensorc_dsl.faces.playground.server import Playground
from tensorc_dsl.ir.program import For, LoopKind, Program, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.processes import machine
from tensorc_dsl.tuning.cluster import access, pool, ssh
from tensorc_dsl.tuning.cluster.board import BoardRunner
from tensorc_dsl.tuning.cluster.runner import ClusterRunner
from tensorc_dsl.tuning.measure import local
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.records import database
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.exchange import written
from tensorc_dsl.tuning.records.shipped import shipped
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key
from tests.cluster.boards import fake_board
from tests.docs.pages import Fence, Run, example, run_command, sessions
from tests.gpu.pretend import pretended, without_pycuda

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = {p.stem: p for p in sorted((ROOT / "docs" / "errors").glob("[EW]*.md"))}
BAD = ROOT / "tests" / "bad"
_SUFFIXES = {"tsched": ".expected", "python": ".expected", "console": ".console", "sh": ".console"}


# --- what is printed -------------------------------------------------------------------------------------------------


def of_file(code: str, fence: Fence, found: Sequence[Diagnostic]) -> str:
    """What is said of a file: by `check`, then by expanding its tasks."""
    assert {d.code for d in found} == {fence.options["error"]}, "\n\n".join(map(render, found))
    if fence.options["error"] != code:  # `check` says it first, by another code
        found = unchecked(Path(fence.file_name or f"{code}.tsched"))
    assert {d.code for d in found} == {code}, "\n\n".join(map(render, found))
    return "\n\n".join(map(render, found)) + "\n"


def unchecked(file: Path) -> Sequence[Diagnostic]:
    """What expanding the first task says of a file that is not right."""
    checked = load_file(Source.read(file, file.name), Resolver(file, ()))
    try:
        found = TaskFile(checked, Target())
        sample(found[next(iter(found))].space, "task", 0)
    except TschedError as e:
        return e.diagnostics
    return ()


def of_commands(code: str, fence: Fence, said: Sequence[tuple[str, int]]) -> str:
    """The commands with what they print; what differs between machines stands as `N`."""
    if fence.language == "sh":
        with FAULTS[code]():
            said = [run_command(session.command) for session in sessions(fence)]
    pairs = zip(sessions(fence), said, strict=True)
    text = "".join(f"$ {session.command}\n{output}" for session, (output, _) in pairs)
    status = said[-1][1]
    severity = "warning" if code.startswith("W") else "error"
    assert status == (0 if severity == "warning" else STATUSES.get(code, 1)), text
    assert re.findall(rf"{severity}\[([EW]\d+)\]", text) == [code], text
    if severity == "warning" or code in GO_ON:  # what the command does all the same is another page's
        text = "".join(re.findall(rf"^\$ .*\n|^{severity}.*\n(?: {{1,8}}\S.*\n)*", text, re.MULTILINE))
    return re.sub(
        r"\d[\d.e+]* (GB|s|threads?)$|\d[\d.e+]* (GB|s)\b",
        _unnumbered,
        text.replace(f"{Path.cwd()}/", ""),
        flags=re.MULTILINE,
    )


def _unnumbered(found: re.Match[str]) -> str:
    unit = found[1] or found[2]
    return f"N {'threads' if unit.startswith('thread') else unit}"


def of_program(code: str, said: Sequence[tuple[str, int]]) -> str:
    ((output, _),) = said
    assert output.startswith(f"{code}: ")
    return output


GO_ON = {"E0348", "E0704", "E0881"}
"""Errors that a command tells when it has done the rest of its work."""

# --- machines in trouble ---------------------------------------------------------------------------------------------


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def full_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _full)
        yield


@contextmanager
def full_disk_of_records() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filelock.FileLock, "acquire", _full)
        yield


@contextmanager
def held_records() -> Iterator[None]:
    with Database.open(Path("records.sqlite")):
        pass
    with pytest.MonkeyPatch.context() as patch, filelock.FileLock("records.sqlite.lock"):
        patch.setitem(Database.open.__func__.__kwdefaults__, "wait", 0.01)  # type: ignore[attr-defined]
        yield


@contextmanager
def no_patience() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "PREPARE_SECONDS", 0.01)
        yield


@contextmanager
def no_plain_kernels() -> Iterator[None]:
    """Nothing is lowered that has no schedule."""
    real = local.lowered_once

    def scheduled_only(program: Program, target: Target) -> Lowered:
        if all(s.kind is LoopKind.SERIAL for _, s in walk(program.body) if isinstance(s, For)):
            raise LowerError("compiling takes more than 20 s")
        return real(program, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "lowered_once", scheduled_only)
        yield


@contextmanager
def crashing_kernels() -> Iterator[None]:
    def crash(_self: object, programs: Sequence[Program], _best: float | None) -> Iterator[Outcome]:
        yield from (Outcome(Status.CRASH, message="the process ended with signal 11") for _ in programs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local.LocalRunner, "measure", crash)
        yield


@contextmanager
def no_compiler() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CC", raising=False)
        patch.setattr(shutil, "which", lambda _name: None)
        yield


@contextmanager
def on_x86() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tensorc_dsl.backend.llvm.backend.native_triple", lambda: "x86_64-unknown-linux-gnu")
        yield


@contextmanager
def broken_package() -> Iterator[None]:
    package = Path("site")
    (package / "broken-1.0.dist-info").mkdir(parents=True)
    (package / "broken-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    declared = f"[{STRATEGIES.group}]\nbroken = broken_package.strategy\n"
    (package / "broken-1.0.dist-info" / "entry_points.txt").write_text(declared)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(package))
        yield


@contextmanager
def endless_file() -> Iterator[None]:
    Path("generated.tsched").write_bytes(b"// \n" * (1 << 20) + b"\n")
    yield


@contextmanager
def forbidden_records() -> Iterator[None]:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with Database.open(Path("shared.sqlite")), pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "require_database_path", refuse)
        yield


@contextmanager
def edited_records() -> Iterator[None]:
    task = load("small.tsched")["small"]
    keys = program_key(task.program), target_key(task.target, task.threads)
    with Database.open(Path("shared.sqlite")) as records:
        records.add(Trial(*keys, "small", "random", 0, 0, "ok", {}, "schedule for matmul {}", "", 1.0))
        records.add(Trial(*keys, "small", "random", 0, 1, "ok", {}, task.sample(0).text, "next", 2.0))
    yield


@contextmanager
def damaged_records() -> Iterator[None]:
    """A database of which a page of rows was overwritten."""
    some = Trial("a", "b", "small", "random", 0, 0, "ok", {}, "schedule s for matmul {}", "", 1.0, created=1.0)
    with Database.open(Path("damaged.sqlite")) as records:
        records.add_all(replace(some, trial=n) for n in range(40))
    data = Path("damaged.sqlite").read_bytes()
    page = next(n for n in range(4096, len(data), 4096) if data[n] == 0x0D and data[n + 3 : n + 5] != b"\0\0")
    Path("damaged.sqlite").write_bytes(data[:page] + b"\xa5" * 4096 + data[page + 4096 :])
    yield


@contextmanager
def edited_export() -> Iterator[None]:
    trial = Trial("a", "b", "small", "random", 0, 0, "ok", {}, "", "", 1.0, created=1.0)
    whole = b"".join(written([trial], {}, {}))
    Path("edited.jsonl").write_bytes(whole + whole.splitlines()[1].replace(b'"seconds":1.0', b'"seconds":-1.0'))
    yield


@contextmanager
def records_of_before() -> Iterator[None]:
    task = load("small.tsched")["small"]
    keys = program_key(task.program), target_key(task.target, task.threads)
    trace = task.sample(0)
    made = dict.fromkeys(task.made_by(trace), "of before")
    made = {name: v for name, v in made.items() if name.startswith("space")}
    with Database.open(Path("shared.sqlite")) as records:
        records.add(Trial(*keys, "small", "random", 0, 0, "ok", {}, trace.text, "", 1.0, modules=made))
    yield


@contextmanager
def one_core() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "usable_cores", lambda: 1)
        yield


@contextmanager
def no_pygls() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "tensorc_dsl.faces.lsp.server", raising=False)
        patch.setitem(sys.modules, "lsprotocol", None)
        patch.setitem(sys.modules, "pygls", None)
        yield


@contextmanager
def planted_link() -> Iterator[None]:
    Path("small.best.tsched").symlink_to("notes.txt")
    yield


def _too_many_files(*_: object, **__: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@contextmanager
def damaged_package() -> Iterator[None]:
    Path("notes.txt").write_text("no archive")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "shipped", partial(shipped, path=Path("notes.txt")))
        yield


@contextmanager
def few_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "reading", _too_many_files)
        yield


def _in_use(*_: object) -> None:
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


@contextmanager
def taken_port() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Playground, "server_bind", _in_use)
        yield


@contextmanager
def no_backend() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "backend_of", lambda kind: None if kind == "cuda" else BACKENDS.load(kind))
        yield


@contextmanager
def no_tools() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "tool", lambda _: None)
        yield


@contextmanager
def no_pycuda() -> Iterator[None]:
    with without_pycuda():
        yield


@contextmanager
def fake_gpu() -> Iterator[None]:
    with pretended():
        yield


STATUSES = {"E0348": 3, "E0807": 5, "E0810": 5, "E0811": 5}
"""The exit statuses of commands that find an error, but for 1."""


@contextmanager
def no_dask() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access, "find_spec", lambda _: None)
        yield


@contextmanager
def no_scheduler() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "CONNECT_SECONDS", 0.3)
        patch.setattr(pool, "reason_of", lambda _: "it does not answer")
        yield


@contextmanager
def impatient() -> Iterator[None]:
    """Workers of two kinds that nobody waits for."""
    kinds = cycle(Target(cpu=name) for name in ("haswell", "znver3"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune, "WORKERS_SECONDS", 0.0)
        patch.setattr(pool, "host_target", lambda _: next(kinds))
        patch.setattr(pool, "gethostname", lambda: "node7")
        yield


@contextmanager
def damaged_file() -> Iterator[None]:
    Path("team").mkdir()
    Path("team", f"records-{'0' * 32}.jsonl").touch()
    yield


@contextmanager
def leaving(how: Exception | None = None) -> Iterator[None]:
    """Workers that are gone when the search begins, or with the scheduler."""
    workers, connect = pool.Pool.workers, pool.Pool.connect
    seen: list[int] = []

    def once(self: pool.Pool) -> list[pool.Seen]:
        seen.append(1)
        if len(seen) > 1 and how is not None:
            raise how
        return workers(self) if len(seen) == 1 else []

    def first(self: pool.Pool) -> None:
        if seen:
            raise TschedError()
        connect(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool.Pool, "workers", once)
        patch.setattr(pool.Pool, "connect", first)
        patch.setitem(ClusterRunner.__init__.__kwdefaults__, "patience", 0.6)  # type: ignore[arg-type]
        yield


@contextmanager
def silent_board() -> Iterator[None]:
    with fake_board() as board:
        board.put("down")
        yield


@contextmanager
def full_board() -> Iterator[None]:
    with fake_board() as board:
        board.put("bin/chmod", "#!/bin/sh\necho 'No space left on device' >&2; exit 1\n")
        yield


@contextmanager
def board_that_goes() -> Iterator[None]:
    """A board that answers until the inputs are sent."""
    call = ssh.Board.call

    def first(self: ssh.Board, script: str, *more: Any) -> CompletedProcess[bytes]:
        if "copy" not in script:
            board.put("down")
        return call(self, script, *more)

    with fake_board() as board, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssh.Board, "call", first)
        patch.setattr(ssh, "AGAIN_SECONDS", 0.1)
        patch.setitem(BoardRunner.__init__.__kwdefaults__, "patience", 0.3)  # type: ignore[arg-type]
        yield


FAULTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "E0704": full_disk_of_records,
    "E0705": held_records,
    "E0707": no_patience,
    "E0708": forbidden_records,
    "E0715": damaged_records,
    "E0716": no_plain_kernels,
    "E0870": no_dask,
    "E0875": no_scheduler,
    "E0876": impatient,
    "E0877": impatient,
    "E0878": leaving,
    "E0879": partial(leaving, pool.Lost("gone")),
    "E0881": damaged_file,
    "E0882": silent_board,
    "E0883": full_board,
    "E0884": board_that_goes,
    "E0904": full_disk,
    "E0908": crashing_kernels,
    "E0910": no_backend,
    "E0913": no_compiler,
    "E0914": on_x86,
    "E0917": endless_file,
    "E0918": no_pycuda,
    "E0919": no_tools,
    "E0922": fake_gpu,
    "E0926": no_pygls,
    "E0927": few_files,
    "E0930": broken_package,
    "E0931": taken_port,
    "E0932": planted_link,
    "W0701": edited_records,
    "W0702": edited_export,
    "W0703": records_of_before,
    "W0704": damaged_records,
    "W0706": nullcontext,
    "W0707": damaged_package,
    "W0901": one_core,
}

# --- tests -----------------------------------------------------------------------------------------------------------


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert list(PAGES) == sorted(raised())


@pytest.mark.parametrize("code", PAGES)
def test_page(code: str) -> None:
    page = PAGES[code].read_text(encoding="utf-8")
    assert re.match(rf"# {code}: .+\n\n\S", page)
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == ["Repair"]
    assert max(map(len, page.splitlines())) <= 120
    prose = re.sub(r"^```.*?^```$", "", page.partition("\n")[2], flags=re.MULTILINE | re.DOTALL)
    wrong, _, repair = prose.partition("## Repair")
    assert len(wrong.split()) <= 50 and len(repair.split()) <= 45, (
        "a sentence says what is wrong, and one how it is mended"
    )


@pytest.mark.parametrize("code", PAGES)
def test_bad(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accept: bool) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("TSCHED_PATH", raising=False)
    page = PAGES[code].read_text(encoding="utf-8")
    wrong = example(page)
    path = BAD / f"{code}{_SUFFIXES[wrong.language]}"
    texts: list[str] = []

    def look(run: Run, fence: Fence) -> None:
        if fence.start > wrong.start and run.last is not None and run.last.language == "python":
            assert not any(output.startswith(code) for output, _ in run.said), "the repair fails as the example does"
        if fence != wrong:
            return
        match fence.language:
            case "tsched":
                texts.append(of_file(code, fence, run.found))
            case "python":
                texts.append(of_program(code, run.said))
            case _:
                texts.append(of_commands(code, fence, run.said))

    run = Run(page, f"{code}.tsched", look)
    if accept and run.text != page:
        PAGES[code].write_text(run.text, encoding="utf-8")
    assert accept or not run.failures, "\n\n".join(run.failures)
    (text,) = texts
    if accept:
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"no {path.name}: run pytest --accept and read what it wrote"
    assert text == path.read_text(encoding="utf-8")


def test_no_bad_file_is_left_over() -> None:
    """A code has one file here, with what is printed: the example is in the page."""
    wanted = {code + _SUFFIXES[example(page.read_text(encoding="utf-8")).language] for code, page in PAGES.items()}
    assert {p.name for p in BAD.iterdir() if re.fullmatch(r"[EW]\d+", p.stem)} == wanted
