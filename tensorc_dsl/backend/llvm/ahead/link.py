"""Links shared libraries with the system's C compiler, which knows the system's conventions."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from tensorc_dsl.diagnostic import TschedError, problem
from tensorc_dsl.processes.start import Limits, run_program


@problem(
    "E0913",
    "`{name}` cannot be linked: {reason}",
    help="name a C compiler, `CC=clang tensorc-dsl …`, or take `--emit obj`, which needs none, and link it yourself",
)
def NO_LINKER(*, name: str, reason: str) -> None: ...


SECONDS = 300.0
"""The time limit of a linker, which usually takes a twentieth of a second."""


def link_shared(object_code: bytes, name: str) -> bytes:
    """The shared library of an object file, linked by the compiler that the variable CC names, else by `cc`.

    Raises TschedError (E0913) if there is none, or if it fails.
    """
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(command[0]) is None:
        raise TschedError(NO_LINKER(None, name=name, reason=f"there is no C compiler `{command[0]}`"))
    options = ["-shared", "-pthread"]
    if sys.platform != "darwin":
        # The pool's threads run code of the library, so it must never be unloaded.
        options += ["-Wl,-z,nodelete", "-Wl,-z,noexecstack", "-Wl,--no-undefined", "-Wl,--as-needed"]
    with tempfile.TemporaryDirectory(prefix="tensorc-dsl-") as folder:
        source, out = Path(folder, f"{name}.o"), Path(folder, f"{name}.so")
        source.write_bytes(object_code)
        done = run_program([*command, *options, "-o", str(out), str(source), "-lm"], Limits(SECONDS))
        if done.returncode:
            said = (done.stderr.strip().replace(f"{folder}{os.sep}", "") or "nothing").splitlines()[0]
            reason = f"`{shlex.join(command)}` ends with status {done.returncode} and says {said}"
            raise TschedError(NO_LINKER(None, name=name, reason=reason))
        return out.read_bytes()
