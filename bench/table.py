"""The table of a report that `python -m bench --json` wrote, in Markdown: `python -m bench.table FILE.json`."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from bench.against.rows import Report
from bench.against.table import document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    path = parser.parse_args().file
    try:
        print(document(msgspec.json.decode(path.read_bytes(), type=Report)))
    except (OSError, msgspec.DecodeError) as e:
        parser.error(f"{path}: {e}")


if __name__ == "__main__":
    main()
