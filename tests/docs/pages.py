"""Runs the examples of Markdown pages: a page shows exactly the output of the software.

Inside a page, in order, in one folder of the page's own:

    ```tsched               a file without findings. A first line `// name.tsched`, or prose that ends in `name.tsched`: just
                            above the fence, names it; then it stays in the folder for what follows.
    ```tsched error=E0330   a file in which `check` finds exactly that (several codes are joined by commas)
    ```console              `$ tensorc-dsl …` or `$ cat FILE`, and what it prints; nothing below a command means anything,
                            a line `…` any lines
    ```console exit=1       the same, where the last command ends with that status
    ```python               a program
    ```c                    a program, built by the system's C compiler from C99 and the objects of the folder, and run
    ```toml                 the folder's `pyproject.toml`
    ```diff                 lines of the last of these files or programs, `-` as they were and `+` as they are from here on;
                            what stands between two `@@` has one place; the whole is then taken as a fence without options

Other fences (`text`, `sh`, …) are shown and not run. `pytest --accept` writes what is printed now into the page.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

from click.testing import CliRunner

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, render
from tensorc_dsl.faces.api import load
from tensorc_dsl.faces.cli.main import main

_FENCE = re.compile(r"^```([a-z]+)((?: [a-z]+=[\w,]+)*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANY_LINES = "…\n"

C_COMPILER = "cc"
"""A page with programs in C needs it."""

CHANGED = ("tsched", "python", "toml")
"""The languages of fences that a `diff` can change."""

NO_SCHEDULE = "E0552"
"""What a task is told whose schedule nothing says."""


@dataclass(frozen=True)
class Fence:
    """A fenced block; `start` and `end` are where its text stands in the page."""

    language: str
    options: dict[str, str]
    text: str
    start: int
    end: int
    line: int
    before: str
    """The line of prose above it."""

    @property
    def file_name(self) -> str | None:
        named = re.match(r"// ([\w-]+\.tsched)\n", self.text) or re.search(r"`([\w-]+\.tsched)`:$", self.before)
        return named[1] if named else None


@dataclass(frozen=True)
class Session:
    """A command and what the page shows of its output."""

    command: str
    shown: str

    def fits(self, output: str) -> bool:
        lines = [
            r"(?:.*\n)*" if line == _ANY_LINES else re.escape(line) for line in self.shown.splitlines(keepends=True)
        ]
        return not self.shown or re.fullmatch("".join(lines), output) is not None


def fences(page: str) -> list[Fence]:
    """All fenced blocks of a page, in order."""
    out: list[Fence] = []
    for m in _FENCE.finditer(page):
        options = dict(part.split("=") for part in m[2].split())
        before = page[: m.start()].rstrip("\n").rpartition("\n")[2]
        line = page.count("\n", 0, m.start()) + 1
        out.append(Fence(m[1], options, m[3], m.start(3), m.end(3), line, before))
    return out


def example(page: str) -> Fence:
    """The block of a page about an error that fails: the last of those that can, above its repair."""
    return [
        f
        for f in fences(page[: page.index("## Repair")])
        if f.language in ("console", "sh", "python") or "error" in f.options
    ][-1]


def applied(text: str, diff: str) -> str:
    """The text with the changes of a `diff` fence. Raises ValueError if the old lines have no place, or several."""
    done: list[str] = []
    rest = text.splitlines()
    for part in re.split(r"^@@\n", diff, flags=re.MULTILINE):
        lines = part.splitlines()
        old = [line[1:] for line in lines if not line.startswith("+")]
        places = [n for n in range(len(rest) - len(old) + 1) if rest[n : n + len(old)] == old]
        if len(places) != 1:
            raise ValueError(f"{len(places)} places have the lines\n" + "\n".join(old))
        done += rest[: places[0]] + [line[1:] for line in lines if not line.startswith("-")]
        rest = rest[places[0] + len(old) :]
    return "\n".join([*done, *rest, ""])


def sessions(fence: Fence) -> list[Session]:
    """The commands of a console block."""
    parts = re.split(r"^\$ ", fence.text, flags=re.MULTILINE)[1:]
    return [Session(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def findings(file: Path) -> list[Diagnostic]:
    """What is wrong with a file and with the schedules of its tasks, warnings included."""
    found: list[Diagnostic] = []
    try:
        tasks = load(file.name)
        found += tasks.checked.diagnostics
        for name in tasks:
            try:
                tasks[name].check()
            except TschedError as e:
                found += e.diagnostics
    except TschedError as e:
        found += e.diagnostics
    return list(dict.fromkeys(found))


class Run:
    """The examples of one page, run in the current folder; `text` is the page with what they print now.

    A file that the page does not name is called `unnamed`. After each fence `then` is called, which may look at the folder
    and at what was found and said last.
    """

    def __init__(
        self,
        page: str,
        unnamed: str = "example.tsched",
        then: Callable[[Run, Fence], None] | None = None,
    ) -> None:
        self.text = page
        self.unnamed = unnamed
        self.failures: list[str] = []
        self.found: list[Diagnostic] = []
        """What is wrong with the last file."""
        self.said: list[tuple[str, int]] = []
        """The output and the status of each of the last commands, or of the last program."""
        self.last: Fence | None = None
        """The last file or program, which a `diff` changes."""
        shift = 0
        for fence in fences(page):
            before = len(self.text)
            self._fence(fence, shift)
            if then is not None:
                then(self, fence)
            shift += len(self.text) - before

    def _fail(self, fence: Fence, what: str) -> None:
        self.failures.append(f"line {fence.line}: {what}")

    def _fence(self, fence: Fence, shift: int) -> None:
        if fence.language == "diff":
            assert self.last is not None, f"line {fence.line}: there is nothing that this changes"
            fence = replace(self.last, text=applied(self.last.text, fence.text), options={}, line=fence.line)
        if fence.language in CHANGED:
            self.last = fence
        match fence.language:
            case "tsched":
                self._file(fence)
            case "console":
                shown = "".join(self._console(fence))
                self.text = self.text[: fence.start + shift] + shown + self.text[fence.end + shift :]
            case "python":
                with redirect_stdout(StringIO()) as out:
                    exec(compile(fence.text, f"<python, line {fence.line}>", "exec"), {"__name__": "example"})
                self.said = [(out.getvalue(), 0)]
            case "c":
                self._c_program(fence)
            case "toml":
                Path("pyproject.toml").write_text(fence.text, encoding="utf-8")
            case _:
                pass

    def _c_program(self, fence: Fence) -> None:
        Path("main.c").write_text(fence.text, encoding="utf-8")
        objects = map(str, sorted(Path().glob("*.o")))
        build = [
            C_COMPILER,
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            "main",
            "main.c",
            *objects,
            "-pthread",
            "-lm",
        ]
        for command in (build, ["./main"]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                self._fail(fence, f"{command[0]} ends with {done.returncode}:\n{done.stdout}{done.stderr}")

    def _file(self, fence: Fence) -> None:
        file = Path(fence.file_name or self.unnamed)
        file.write_text(fence.text, encoding="utf-8")
        self.found = found = findings(file)
        wanted = set(filter(None, fence.options.get("error", "").split(",")))
        # An example about computes need not say how they are scheduled.
        if {d.code for d in found} - ({NO_SCHEDULE} - wanted) != wanted:
            self._fail(fence, "\n".join(map(render, found)) or "nothing is wrong with this")

    def _console(self, fence: Fence) -> Iterator[str]:
        """The block as it should be; lines that stand for others stay as long as they fit."""
        every = sessions(fence)
        self.said = []
        for n, session in enumerate(every):
            last = n == len(every) - 1
            output, status = run_command(session.command)
            self.said.append((output, status))
            wanted = int(fence.options.get("exit", "0")) if last else 0
            if status != wanted:
                self._fail(fence, f"$ {session.command}\nends with {status}:\n{output}")
            elif not session.fits(output):
                self._fail(fence, f"$ {session.command}\nprints\n{output}")
            keep = session.fits(output) or _ANY_LINES in session.shown.splitlines(keepends=True)
            yield f"$ {session.command}\n{session.shown if keep else output}"


def run_command(command: str) -> tuple[str, int]:
    """What a command prints, errors included, and its exit status."""
    program, *arguments = shlex.split(command)
    if program == "cat":
        return "".join(Path(a).read_text(encoding="utf-8") for a in arguments), 0
    assert program == "tensorc-dsl", f"a page runs `tensorc-dsl` and `cat`, not `{program}`"
    result = CliRunner().invoke(main, arguments)
    return result.output, result.exit_code
