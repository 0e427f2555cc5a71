"""How long a person waits for `check`: the start of the command, and a file of 10,000 lines after it.

    python -m bench.startup [--lines 10000] [--rounds 10]

The long file is made of the standard library and the examples, written down again and again under new names. A time is the
best of the rounds: what the machine can do, whatever else it is doing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SMALL = ROOT / "examples" / "matmul.tsched"
TEXTS = ("stdlib/cpu/modules.tsched", "stdlib/ops/*.tsched", "examples/*.tsched")
COMMAND = "from tensorc_dsl.cli.main import main; main()"
_ITEM = re.compile(r"^(?:compute|module|space|schedule|task) (\w+)", re.MULTILINE)
_BETWEEN = re.compile(r"\n\n(?=///|compute |module |space |schedule |task )")


def long_text(lines: int) -> str:
    """At least `lines` lines that `check` has nothing against."""
    items: dict[tuple[str, ...], str] = {}
    for pattern in TEXTS:
        for path in sorted(ROOT.glob(pattern)):
            for part in _BETWEEN.split(path.read_text(encoding="utf-8")):
                named = tuple(_ITEM.findall(part))
                if named and named not in items:
                    items[named] = part.strip("\n")
    whole = "\n\n".join(items.values()) + "\n"
    names = re.compile(rf"\b({'|'.join(name for named in items for name in named)})\b")
    copies = -(-lines // (whole.count("\n") + 1))
    return "\n".join(names.sub(rf"\1_{n}", whole) for n in range(copies))


def seconds(*arguments: str) -> float:
    """The time of one run of the command, start and all. RuntimeError when it fails."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", COMMAND, *arguments], check=False, capture_output=True, text=True)
    end = time.perf_counter()
    if done.returncode != 0:
        raise RuntimeError(done.stderr or done.stdout)
    return end - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    text = long_text(arguments.lines)
    with tempfile.TemporaryDirectory() as folder:
        long = Path(folder) / "long.tsched"
        long.write_text(text, encoding="utf-8")
        version = min(seconds("--version") for _ in range(arguments.rounds))
        small = min(seconds("check", str(SMALL)) for _ in range(arguments.rounds))
        whole = min(seconds("check", str(long)) for _ in range(arguments.rounds))
    count = text.count("\n")
    print(f"tensorc-dsl --version              {version * 1e3:7.0f} ms")
    print(
        f"tensorc-dsl check {SMALL.name:<17}{small * 1e3:7.0f} ms   start, and {SMALL.read_text().count(chr(10))} lines"
    )
    print(f"tensorc-dsl check long.tsched      {whole * 1e3:7.0f} ms   start, and {count:,} lines")
    print(f"{count:,} lines after the start    {(whole - small) * 1e3:7.0f} ms")


if __name__ == "__main__":
    main()
