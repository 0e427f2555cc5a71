"""Times `check`: the start of the command, and a file of 10,000 lines.

    python -m bench.startup [--lines 10000] [--rounds 10]

The long file consists of the standard library and the examples, repeated under new names. A time is the
best of the rounds, as wall time and processor time (the better one to compare on a busy machine). Python may
keep its compiled files, as it does for an installed package, and the tables of the grammar are in their cache.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from tensorc_dsl.syntax.layout import REDUCERS

ROOT = Path(__file__).resolve().parent.parent
SMALL = ROOT / "examples" / "matmul.tsched"
FOLDERS = ("stdlib/intrinsics", "stdlib/cpu", "stdlib/gpu", "stdlib/ops", "examples")
TEXTS = tuple(f"{folder}/*.tsched" for folder in FOLDERS)
COMMAND = "from tensorc_dsl.faces.cli.main import main; main()"
_KINDS = "const|compute|reducer|intrinsic|target|module|space|schedule|task|program"
_ITEM = re.compile(rf"^(?:{_KINDS}) (\w+)", re.MULTILINE)
_IMPORTS = re.compile(r"^use [\w.]+\.\{([^}]*)\}", re.MULTILINE)
_BETWEEN = re.compile(rf"\n\n(?=///|(?:{_KINDS}) )")


@cache
def _shared() -> frozenset[str]:
    """The names that a file takes from another one."""
    lists = (_IMPORTS.findall(p.read_text(encoding="utf-8")) for pattern in TEXTS for p in ROOT.glob(pattern))
    return frozenset(name.strip() for found in lists for names in found for name in names.split(","))


def _apart(text: str) -> str:
    """A file whose constants have names that are no names in other files, unless other files use them too."""
    constants = "|".join(c for c in re.findall(r"^const (\w+)", text, re.MULTILINE) if c not in _shared())
    return re.sub(rf"\b({constants})\b", r"\1_constant", text) if constants else text


def long_text(lines: int) -> str:
    """At least `lines` lines that `check` has nothing against."""
    items: dict[tuple[str, ...], str] = {}
    for pattern in TEXTS:
        for path in sorted(ROOT.glob(pattern)):
            for part in _BETWEEN.split(_apart(path.read_text(encoding="utf-8"))):
                named = tuple(_ITEM.findall(part))
                if named and named not in items:
                    items[named] = part.strip("\n")
    whole = "\n\n".join(items.values()) + "\n"
    # Nothing names a task, and what it is called may be a word of the language.
    tasks = set(re.findall(r"^task (\w+)", whole, re.MULTILINE))
    own = "|".join(name for named in items for name in named if name not in tasks)
    # `argmax[i]` is the language's own, `argmax(X)` a compute; `l.tiles(n)` is a query.
    reduction = "|".join(REDUCERS)
    names = re.compile(rf"(?m)(?<=reduce )({own})\b|\b(?<!\.)(?!(?:{reduction})\[)({own})\b|(?<=^task )\w+")
    copies = -(-lines // (whole.count("\n") + 1))
    return "\n".join(names.sub(rf"\g<0>_{n}", whole) for n in range(copies))


def seconds(folder: str, *arguments: str) -> tuple[float, float]:
    """Times of one run of the command, start and all, on the clock and of the processor. RuntimeError when it fails.

    Python keeps its compiled files in the folder.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": folder, "PYTHONPATH": str(ROOT)}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], check=False, capture_output=True, text=True, env=environment
    )
    end, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(done.stderr or done.stdout)
    return end - begin, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def best(folder: str, rounds: int, *arguments: str) -> tuple[float, float]:
    """The smallest times of some runs, behind one that fills the caches."""
    seconds(folder, *arguments)
    clock, processor = zip(*(seconds(folder, *arguments) for _ in range(rounds)), strict=True)
    return min(clock), min(processor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    text = long_text(arguments.lines)
    with tempfile.TemporaryDirectory() as folder:
        long = Path(folder) / "long.tsched"
        long.write_text(text, encoding="utf-8")
        version = best(folder, arguments.rounds, "--version")
        small = best(folder, arguments.rounds, "check", str(SMALL))
        whole = best(folder, arguments.rounds, "check", str(long))
    rest = whole[0] - small[0], whole[1] - small[1]
    lines = text.count("\n")
    print(f"{'':<34}{'clock':>10}{'processor':>13}")
    for what, (clock, processor) in (
        ("tensorc-dsl --version", version),
        (f"tensorc-dsl check {SMALL.name}", small),
        (f"check of {lines:,} lines after that", rest),
    ):
        print(f"{what:<34}{clock * 1e3:>7.0f} ms{processor * 1e3:>10.0f} ms")


if __name__ == "__main__":
    main()
