"""A board that is reached by `ssh`: files go there, and programs run there. It needs a shell, and no Python.

One connection is kept open as long as the board is used. It owns the folder of all files there, and the others share it where
ssh can. When this process ends, however it does, the input of that connection ends, and the board removes the folder itself.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, Self

from tensorc_dsl.backend.once import lowered_once
from tensorc_dsl.backend.protocol import require_backend
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.start import Limits, end, run_with_input, start_executable
from tensorc_dsl.tuning.cluster.access import NO_ADDRESS
from tensorc_dsl.tuning.measure.outcome import MachineChange


@problem(
    "E0882",
    "there is no board at `{address}`: {why}",
    help="see that `{command} true` works and asks nothing: keys, known hosts and jumps are those of ssh's own settings",
)
def NO_BOARD(*, address: str, why: str, command: str) -> None: ...
@problem(
    "E0883",
    "the board `{machine}` cannot run kernels for `{target}`: {why}",
    help="name its processor by `--target`, free space there, or give a folder whose programs may run, `ssh://{host}/FOLDER`",
)
def UNABLE(*, machine: str, target: str, why: str, host: str) -> None: ...
@problem(
    "E0884",
    "the connection to the board `{machine}` broke, and it did not come back within {seconds:g} s: {why}",
    help="the trials so far are recorded: see that `{command} true` works, and go on with `--resume`",
)
def BOARD_GONE(*, machine: str, seconds: float, why: str, command: str) -> None: ...


FORM = "runner"
"""The form of a library that a board runs."""

CONNECT_SECONDS = 10
"""How long a board may take to answer."""

ALIVE_SECONDS, ALIVE_COUNT = 5, 3
"""A connection is lost when nothing came for so many seconds, so many times."""

TRANSFER_SECONDS = 600.0
"""How long files may take to be sent and to come back; a connection that is lost is noticed sooner."""

LONGEST_SECONDS = 30 * 86400.0
"""How long a board may be used."""

AGAIN_SECONDS = 1.0
"""How long it takes until a board that was lost is looked for again."""

LONGEST_SOCKET = 80
"""The longest path of a socket that connections share: systems allow about 100 bytes, and ssh adds some."""

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_ADDRESS = re.compile(rf"ssh://((?:{_NAME}@)?(?:{_NAME}|\[[0-9A-Fa-f:.]+\]))(?::(\d+))?(/[^\0\n]*)?")


@frozen
class Where:
    """Where a board is: its name for ssh, the port if it is not the usual one, and the folder if one is named."""

    text: str
    host: str
    port: str
    folder: str

    @staticmethod
    def of(text: str) -> Where:
        """The address `ssh://[USER@]HOST[:PORT][/FOLDER]`. Raises TschedError (E0872)."""
        found = _ADDRESS.fullmatch(text)
        if found is None:
            raise TschedError(NO_ADDRESS(None, address=text, why="it is not `ssh://[USER@]HOST[:PORT][/FOLDER]`"))
        host, port, folder = found.groups("")
        return Where(text, host.replace("[", "").replace("]", ""), port, folder)

    @property
    def command(self) -> str:
        """What a person types to get there."""
        return f"ssh {f'-p {self.port} ' if self.port else ''}{self.host}"


class Lost(Exception):
    """The connection broke; the message says why."""


class Board:
    """A board that is reached by ssh, `with Board("ssh://pi@10.0.0.7") as board`, for `Task.search(on=board)`.

    Entering connects. Raises TschedError (E0872) for what is no address, and E0882 where nobody answers.
    """

    def __init__(self, address: str) -> None:
        self.where = Where.of(address)
        self.machine = ""
        """The name that it has for itself."""
        self.folder = ""
        self.opened = 0
        """How often it was connected: each time it has a new, empty folder."""
        self._count = 0
        self._keeper: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._sockets: tempfile.TemporaryDirectory[str] | None = None

    def number(self) -> int:
        """A number that no other user of the board has, for the names of its files."""
        self._count += 1
        return self._count

    def open(self) -> None:
        """Connect, and make the folder there. Raises TschedError (E0882)."""
        self.close()
        if shutil.which("ssh") is None:
            raise self._missing("there is no program `ssh` here")
        self._sockets = tempfile.TemporaryDirectory(prefix="tensorc-")
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the connection
        within = shlex.quote(self.where.folder) if self.where.folder else '"${TMPDIR:-/tmp}"'
        script = (
            f"d=$(mktemp -d {within}/tensorc-dsl.XXXXXX) || exit 1; echo; echo {_FOLDER}$d; echo {_MACHINE}$(uname -n); "
            'cat > /dev/null; for i in 1 2 3; do rm -rf "$d" && break; sleep 1; done'
        )
        try:
            self._keeper = start_executable(self._command(script, keeps=True), Limits(LONGEST_SECONDS), self._said)
            lines = self._first_lines(self._keeper)
            self.folder, self.machine = lines[_FOLDER], lines[_MACHINE]
        except BaseException:
            self.close()
            raise
        self.opened += 1

    def _first_lines(self, keeper: subprocess.Popen[bytes]) -> dict[str, str]:
        """What the board says of itself. Raises TschedError (E0882)."""
        assert keeper.stdout is not None
        until, data = time.monotonic() + 2 * CONNECT_SECONDS, b""
        while True:
            lines = data.decode(errors="replace").split("\n")[:-1]
            found = {key: x.removeprefix(key) for key in (_FOLDER, _MACHINE) for x in lines if x.startswith(key)}
            if len(found) == 2:
                return found
            left = until - time.monotonic()
            if left <= 0 or not select.select([keeper.stdout], [], [], left)[0]:
                raise self._missing("it does not answer")
            more = os.read(keeper.stdout.fileno(), 1 << 16)
            if not more:
                keeper.wait()
                raise self._missing(self._reason())
            data += more

    def _missing(self, why: str) -> TschedError:
        return TschedError(NO_BOARD(None, address=self.where.text, why=why, command=self.where.command))

    def _reason(self, said: bytes = b"") -> str:
        """The last line of what ssh or the board said, of the kept connection if another one said nothing."""
        if not said and self._said is not None:
            self._said.seek(0)
            said = self._said.read()
        lines = [x.strip() for x in said.decode(errors="replace").splitlines() if x.strip()]
        return lines[-1] if lines else "ssh ends and says nothing"

    def _command(self, script: str, keeps: bool = False) -> list[str]:
        """The command that runs a script there. The connection that is kept is the one that the others share."""
        options = {
            "BatchMode": "yes", "ConnectTimeout": CONNECT_SECONDS, "ServerAliveInterval": ALIVE_SECONDS,
            "ServerAliveCountMax": ALIVE_COUNT, "ControlMaster": "yes" if keeps else "no", "ControlPersist": "no",
            "ControlPath": "none",
        }  # fmt: skip
        if self._sockets is not None and len(self._sockets.name) <= LONGEST_SOCKET:
            options["ControlPath"] = f"{self._sockets.name}/s"
        named = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        port = ["-p", self.where.port] if self.where.port else []
        # Login shells differ; the script is for the one that all systems have.
        return ["ssh", "-T", "-a", "-x", *named, *port, self.where.host, f"exec sh -c {shlex.quote(script)}"]

    def call(self, script: str, data: bytes = b"", seconds: float = 0.0) -> subprocess.CompletedProcess[bytes]:
        """What a script says, in the board's folder and with this input, and its status; it may run for so many seconds,
        besides what sending takes. Raises Lost.

        The status is one that the board tells: that of ssh, which shares a connection, is sometimes one of a connection that
        broke where all came back.
        """
        folder = shlex.quote(self.folder)
        whole = f"if cd {folder}; then ( {script} ); s=$?; echo; echo {_ENDED}$s; else echo; echo {_ENDED}{_GONE}; fi"
        done = run_with_input(self._command(whole), data, Limits(seconds + TRANSFER_SECONDS))
        said, _, last = done.stdout.rpartition(f"\n{_ENDED}".encode())
        status = last.strip().decode(errors="replace")
        if status == _GONE:
            raise Lost("its folder is gone" if self._keeper is None or self._keeper.poll() is None else self._reason())
        if status == str(_SHORT):
            raise Lost("a part of a file did not arrive")
        if not status.isdecimal():
            late = f"it takes more than {seconds + TRANSFER_SECONDS:g} s"
            raise Lost(late if done.returncode < 0 else self._reason(done.stderr))
        return subprocess.CompletedProcess(done.args, int(status), said, done.stderr)

    def unable(self, target: Target, said: bytes) -> TschedError:
        """The error that the board cannot run what was sent, with what it said."""
        host, why = self.where.host, self._reason(said)
        return TschedError(UNABLE(None, machine=self.machine, target=target.key, why=why, host=host))

    def require(self, target: Target, task: str) -> None:
        """Have the board run a program for the target that copies a number.

        Raises TschedError (E0883) if it cannot, E0910 and E0915 if no code can be made for the target, and E0912 and E0913 if
        no program can be made of it.
        """
        backend = require_backend(target.kind, task)
        if FORM not in backend.forms:
            raise self.unable(target, f"there are no programs of one file for targets of kind `{target.kind}`".encode())
        backend.require_known(target)
        program = parse_program(Source("<a copy>", _COPY.replace("NAME", task)))
        compiled = backend.compile(lowered_once(program, target).kernel, target, 1)
        file = backend.library(compiled, task, "a copy of a number").make(FORM)
        script = f"{received('copy', file)}; chmod 700 copy && ./copy --seconds 0 && rm copy"
        try:
            done = self.call(script, file)
        except Lost:
            self.open()  # it may have been away since it was connected
            try:
                done = self.call(script, file)
            except Lost as e:
                raise self._missing(str(e)) from None
        if done.returncode:
            raise self.unable(target, done.stderr)

    def reopen(self, why: str, patience: float, told: Callable[[MachineChange], None]) -> None:
        """Connect again after a connection was lost, for as long as `patience` allows. Raises TschedError (E0884)."""
        machine, until = self.machine, time.monotonic() + patience
        told(MachineChange(machine, "left", why))
        while True:
            try:
                self.open()
                if self.machine == machine:
                    break
                why, until = f"another machine answers, `{self.machine}`", 0.0
            except TschedError as e:
                why = e.diagnostics[0].message.partition(": ")[2] or why
            if time.monotonic() >= until:
                command = self.where.command
                gone = BOARD_GONE(None, machine=machine, seconds=patience, why=why, command=command)
                raise TschedError(gone) from None
            time.sleep(AGAIN_SECONDS)
        told(MachineChange(machine, "joined"))

    def close(self) -> None:
        """End the connection, whose end has the board remove its folder."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            for pipe in (keeper.stdin, keeper.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                keeper.wait(CONNECT_SECONDS)
            except BaseException as e:
                end(keeper)
                if not isinstance(e, subprocess.TimeoutExpired):
                    raise
        if self._said is not None:
            self._said.close()
            self._said = None
        if self._sockets is not None:
            self._sockets.cleanup()
            self._sockets = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


_FOLDER, _MACHINE, _ENDED = "tensorc-dsl-folder ", "tensorc-dsl-machine ", "tensorc-dsl-ended "
"""How the lines begin in which a board says where its files are, its name, and the status of what it ran, or that the folder
is `_GONE`."""

_GONE = "gone"

_SHORT = 77
"""The status of a script that got a part of its input."""


def received(name: str, data: bytes) -> str:
    """The part of a script that writes its input to a file. Where a connection ends early, the input does, too."""
    return f"cat > {name} || exit 1; [ $(wc -c < {name}) -eq {len(data)} ] || exit {_SHORT}"


_COPY = """
program NAME(X: f32[1], Y: f32[1]) {
    for i in 1 {
        block Y {
            spatial vi in 1 = i
            Y[vi] = X[vi]
        }
    }
}
"""
"""A program that shows whether a board runs code for a target: it checks the processor before it copies."""
