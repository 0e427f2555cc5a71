"""The digests of the library's files, of which each is checked before it is written: `check/items.py` reads them."""

from __future__ import annotations

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.resources import stdlib_root
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.items import digest, is_checked
from tensorc_dsl.check.scope import load_file

SUMS = stdlib_root() / "SHA256SUMS"


def sums() -> str:
    """A line for each file, as `sha256sum` writes them. Raises TschedError with what is wrong in a file that has changed."""
    lines: list[str] = []
    for path in sorted(stdlib_root().rglob("*.tsched")):
        name = path.relative_to(stdlib_root()).as_posix()
        source = Source.read(path, f"std/{name}")
        if not is_checked(source) and (found := load_file(source).diagnostics):
            raise TschedError(*found)
        lines.append(f"{digest(source)}  {name}\n")
    return "".join(lines)
