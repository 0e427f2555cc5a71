"""Foreign files do no harm: the files and processes used by reading, checking, expanding and drawing, from Python's audit
events.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.fuzz import generate

ROOT = Path(__file__).resolve().parents[2]

WATCH = """
import os, sys
from contextlib import suppress

from tensorc_dsl.check.scope import load_file
from tensorc_dsl.base.diagnostic import TschedError, render
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.target import Target
from tensorc_dsl.faces.packages import Resolver
from tensorc_dsl.faces.report.files import read_source
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.step import refusal_diagnostic
from tensorc_dsl.tuning.search.expansion import stream
from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax.parse import parse

folder, *files = sys.argv[1:]
# Python's own files are read when a module of ours is first needed.
allowed = [os.path.realpath(p) for p in (folder, sys.prefix, sys.base_prefix, *sys.path)]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
HARM = ("os.", "socket.", "subprocess.", "shutil.", "tempfile.", "mmap.", "ctypes.", "urllib.", "sqlite3.", "signal.")


def inside(path):
    real = os.path.realpath(path)
    return any(real == a or real.startswith(a + os.sep) for a in allowed)


def watch(event, args):
    if event == "open":
        path, _, flags = args
        harm = not isinstance(path, int) and (flags & WRITES or not inside(path))
    elif event in ("os.listdir", "os.scandir"):
        harm = not inside(args[0] or ".")
    else:
        harm = event.startswith(HARM)
    if harm:
        os.write(1, f"HARM {event} {args}\\n".encode())


def digest(file):
    try:
        checked = load_file(read_source(file), Resolver(file))
    except TschedError as e:
        return e.diagnostics[0].code
    ends = [d.code for d in checked.errors]
    for d in checked.diagnostics:
        render(d)
    for name in checked.tasks if not ends else ():
        try:
            task_space(checked, name, Target()).sample(stream(0, name, "harmless"))
            ends.append("drawn")
        except TschedError as e:
            ends += [d.code for d in e.diagnostics]
        except ScheduleRefusal as e:
            ends.append(render(refusal_diagnostic(e))[6:11])
    return " ".join(ends) or "checked"


# The first text that is read, and the first that is wrong, make the tables of the grammar, or read them from their cache.
with suppress(TschedError):
    parse(Source("first", "task t = m()"))
    parse(Source("second", "("))
sys.addaudithook(watch)
for file in files:
    os.write(1, f"{os.path.basename(file)}: {digest(file)}\\n".encode())
"""


def watched(tmp_path: Path, folder: Path, *files: Path) -> list[str]:
    """What becomes of each file, when only `folder` may be read; and before it, what it touched besides."""
    script = tmp_path / "watch" / "watch.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(WATCH, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "TSCHED_PATH"} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-B", str(script), str(folder), *map(str, files)],
        check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


COMPUTE = """
compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
task t = matmul(M=64, N=64, K=64)
"""

HOSTILE = {
    "use ../../secret": "E0101",
    "use /etc/passwd": "E0101",
    'use "secret"': "E0101",
    "use secret.x": "E0232",
    "use leads_out": "E0232",
    "use folder_out": "E0232",
    "use folder_out.x": "E0232",
    "use folder_out.y": "E0232",
    "use nowhere": "E0232",
    "use lib": "drawn",
    'schedule s for matmul { open("/etc/passwd") }': "E0223",
    'schedule s for matmul { __import__("os") }': "E0223",
    'schedule s for matmul { os.system("touch here") }': "E0220",
    "schedule s for matmul { let x = target.__class__ }": "E0226",
    "schedule s for matmul { let x = C.loops.__class__.__mro__ }": "E0226",
    'schedule s for matmul { let x = "{0.__class__}".format(C) }': "E0226",
    'schedule s for matmul { split(C.loops[0], [3, _]); annotate(C, "{loop.__class__}", "%s{}") }': "E0312",
    'schedule s for matmul { annotate(C, "../../{block.__class__}", "{}%s"); parallel(C.loops[2]) }': "E0330",
    "module a(b: Block) { a(b) }\nschedule s for matmul { a(C) }": "E0228",
    "schedule s for matmul { for a in range(1000) { for b in range(1000) { let c = 1 } } }": "E0532",
    "schedule s for matmul { let x = range(9000000000000000000) }": "E0529",
    f"schedule s for matmul {{ let x = [1]\n{'let x = x + x; ' * 60} }}": "E0529",
    f"schedule s for matmul {{ let x = 9\n{'let x = x * x; ' * 60} }}": "E0524",
    "schedule s for matmul { for n in range(90) { let [a, b] = split(C.loops[-1], [_, 1]) } }": "E0532",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file that may be used, and links to files outside of it that may not."""
    here = tmp_path / "deep" / "here"
    here.mkdir(parents=True)
    for secret in (tmp_path / "secret.tsched", tmp_path / "outside" / "x.tsched"):
        secret.parent.mkdir(exist_ok=True)
        secret.write_text("module stolen(b: Block) { parallel(b.loops[0]) }\n", encoding="utf-8")
    (here / "leads_out.tsched").symlink_to(tmp_path / "secret.tsched")
    (here / "folder_out").symlink_to(tmp_path / "outside")
    (here / "lib.tsched").write_text("module m(b: Block) { parallel(b.loops[0]) }\nspace lib for llvm { m }\n")
    return here


def test_hostile_files_read_their_own_folder_and_touch_nothing(tmp_path: Path, folder: Path) -> None:
    files: list[Path] = []
    for n, text in enumerate(HOSTILE):
        files.append(folder / f"h{n:02}.tsched")
        files[-1].write_text(text + COMPUTE, encoding="utf-8")
    before = sorted(p.name for p in folder.iterdir())
    ends = watched(tmp_path, folder, *files)
    assert [e for e in ends if e.startswith("HARM")] == []
    said = {text: end.partition(": ")[2] for text, end in zip(HOSTILE, ends, strict=True)}
    assert {text: end.split(" ")[0] for text, end in said.items()} == HOSTILE
    assert sorted(p.name for p in folder.iterdir()) == before


def test_strange_files_touch_nothing(tmp_path: Path, folder: Path) -> None:
    files: list[Path] = []
    for n in range(60):
        files.append(folder / f"s{n:02}.tsched")
        files[-1].write_bytes(generate("grammar" if n % 3 else "bytes", 17, n))
    ends = watched(tmp_path, folder, *files)
    assert [e for e in ends if e.startswith("HARM")] == []
    assert len(ends) == len(files)


def test_the_watcher_sees(tmp_path: Path, folder: Path) -> None:
    """What may be read here is another folder: the file itself is too much."""
    file = folder / "plain.tsched"
    file.write_text("use lib\n" + COMPUTE, encoding="utf-8")
    (tmp_path / "empty").mkdir()
    harm = [e for e in watched(tmp_path, tmp_path / "empty", file) if e.startswith("HARM open")]
    assert any("plain.tsched" in e for e in harm)
    assert any("lib.tsched" in e for e in harm)
