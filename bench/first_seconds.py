"""Shows the first output of `tune`: the new text on a terminal, with the second at which it appears.

    python -m bench.first_seconds                                  # the task of `make demo`, its first ten seconds
    python -m bench.first_seconds --seconds 60 --columns 60 FILE TASK

The command runs on a pseudo terminal. Lines that stay are shown as they come, the one that is overwritten once a second. With
`--plain` the output is a file, as in a log.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

from bench.against.machine import described
from tensorc_dsl.tuning.machine.host import host_target

COMMAND = (sys.executable, "-c", "from tensorc_dsl.faces.cli.main import main; main(prog_name='tensorc-dsl')")
DEMO = ("examples/matmul.tsched", "mm_512")

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def written(
    arguments: Sequence[str],
    *,
    columns: int | None,
    seconds: float,
    folder: Path,
    environment: Mapping[str, str],
    terminal: str = "xterm",
) -> Iterator[tuple[float, str]]:
    """The output of the command, with the seconds since its start; it goes to such a terminal, or without a width to a pipe.

    After so many seconds it is interrupted, and what it writes about that follows. Raises RuntimeError where it fails.
    """
    ours, theirs = pty.openpty() if columns is not None else os.pipe()
    settings = {k: v for k, v in environment.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    size = {} if columns is None else {"TERM": terminal, "COLUMNS": str(columns), "LINES": "30"}
    began = time.monotonic()
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, env={**settings, **size}, stdin=subprocess.DEVNULL, stdout=theirs,
        stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    stopped = False
    while True:
        late = time.monotonic() - began > seconds
        if late and not stopped:
            stopped = True
            process.send_signal(signal.SIGINT)
        if select.select([ours], [], [], 0.05)[0]:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # the last one to write on a terminal has gone
                break
            if not data:
                break
            yield time.monotonic() - began, data.decode(errors="replace")
    os.close(ours)
    status = process.wait(timeout=60)
    if status != (130 if stopped else 0):
        raise RuntimeError(f"the command ended with status {status}")


def new_text(chunks: Iterator[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Lines with the time at which they are there: those that stay, and once a second the one that is overwritten."""
    rest, shown_at = "", float("-inf")
    for seconds, chunk in chunks:
        *lines, rest = (rest + _CONTROL.sub("", chunk).replace("\r\n", "\n")).split("\n")
        for line in lines:
            stays = line.rpartition("\r")[2].rstrip()
            if stays:
                yield seconds, stays
        rest = rest.rpartition("\r")[2]
        if rest.strip() and seconds - shown_at >= 1.0:
            shown_at = seconds
            yield seconds, rest.rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="*", default=DEMO, metavar="FILE TASK")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--columns", type=int, default=80)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plain", action="store_true", help="not on a terminal")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options = [
            "--threads",
            str(given.threads),
            "--output",
            f"{folder}/best.tsched",
            "--records",
            f"{folder}/r.sqlite",
        ]
        host = host_target()
        print(f"{described(host.cpu, host.cores)}, {date.today().isoformat()}")
        print(f"$ tensorc-dsl tune {' '.join(given.task)} --threads {given.threads}")
        chunks = written(
            ["tune", *given.task, *options], columns=None if given.plain else given.columns, seconds=given.seconds,
            folder=Path.cwd(), environment=os.environ,
        )  # fmt: skip
        for seconds, line in new_text(chunks):
            if seconds <= given.seconds:
                print(f"{seconds:5.1f} s  {line}", flush=True)


if __name__ == "__main__":
    main()
