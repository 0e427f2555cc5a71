"""The cases of corpora that one run takes: another part of each with each state of the package, and what a change touches.

A corpus is the marked tests of one file, such as the schedules after other projects' tests, or all whose mark has a name,
such as "endings of searches": each case looks for the same classes of defects in another input. One part of its cases is run,
at least one of each corpus; `pytest --all` runs all of them, as the nightly workflow and the campaigns do.
"""

from __future__ import annotations

import re
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

SHARE = 8
"""One case of so many is run."""

NAMED = (
    "tensorc_dsl/schedule/primitives/",
    "tensorc_dsl/schedule/queries/",
    "stdlib/",
    "tests/foreign/schedules/",
    "tests/primitives/",
)
"""Folders whose files have the names that cases use: of steps, modules, computes and pages."""

MANY = 12
"""A change of more files of a kind is a move or a new name, of which a part of each corpus tells as much as all."""

NEAR = 4
"""A module that more files of tests import is no part of them: a part of each corpus tells as much of it as all."""


@dataclass(frozen=True, slots=True)
class Touched:
    """What the last commit and the working tree change."""

    files: frozenset[str]
    """The files of tests: their corpora are run whole."""
    names: re.Pattern[str] | None
    """The names that cases use of other files that are changed, pages among them; None where there is none."""
    modules: frozenset[str] = frozenset()
    """The changed modules of the package: the corpora of a file of tests of the same name, and of the few files that import
    one, are run whole."""

    def has(self, item: pytest.Item) -> bool:
        """Whether the change touches that case."""
        file = _file(item)
        if file in self.files or Path(file).stem.removeprefix("test_") in {m.rpartition(".")[2] for m in self.modules}:
            return True
        return self.names is not None and bool(self.names.search(f"{item.nodeid} {getattr(item, 'callspec', '')}"))


def sampled(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The items, in their order, that a run without `--all` has: of a corpus one part of its cases, all others."""
    corpora: defaultdict[str, list[str]] = defaultdict(list)
    for item in items:
        if is_case(item):
            corpora[_corpus(item)].append(item.nodeid)
    kept = {name for names in corpora.values() for name in part(names, _state())}
    touched = _touched()
    near = importing({_file(item) for item in items}, touched.modules)
    return [
        item for item in items if not is_case(item) or item.nodeid in kept or _file(item) in near or touched.has(item)
    ]


def is_case(item: pytest.Item) -> bool:
    """Whether that is one of the cases of a corpus: a marked test."""
    return item.get_closest_marker("corpus") is not None


def importing(files: Collection[str], modules: Collection[str]) -> set[str]:
    """Those of the files that import one of the modules, where no more than `NEAR` import it."""
    found = defaultdict[str, set[str]](set)
    for file in files if modules else ():
        for module in _IMPORT.findall((ROOT / file).read_text(encoding="utf-8")):
            found[module].add(file)
    return {file for m in modules if len(found[m]) <= NEAR for file in found[m]}


_IMPORT = re.compile(r"^from ([\w.]+) import", re.MULTILINE)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _corpus(item: pytest.Item) -> str:
    """What has the other cases of its corpus: what its mark names, or its file."""
    mark = item.get_closest_marker("corpus")
    return str(mark.args[0]) if mark is not None and mark.args else _file(item)


def part(names: Iterable[str], state: int) -> set[str]:
    """One case of `SHARE`, and at least one. The parts of successive states cover all cases.

    The cases are mixed first: neighbours often differ in one parameter, and a part has values of each.
    """
    mixed = sorted(names, key=lambda name: (zlib.crc32(name.encode()), name))
    return set(mixed[state % min(SHARE, len(mixed)) :: SHARE])


@cache
def _state() -> int:
    """A number that is another one after each change of the package."""
    found = 0
    for path in sorted(p for folder in ("tensorc_dsl", "stdlib") for p in (ROOT / folder).rglob("*.*")):
        if path.suffix in (".py", ".tsched"):
            found = zlib.crc32(path.read_bytes(), found)
    return found


@cache
def _touched() -> Touched:
    """What the last commit and the working tree change; nothing where that is not known."""
    changed = set[str]()
    for since in ("HEAD~1", "HEAD"):
        run = ["git", "diff", "--name-only", since]
        try:
            paths = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        except (OSError, subprocess.CalledProcessError):
            continue  # a checkout without history
        changed |= {*paths}
    return touched_by(changed)


def touched_by(changed: Collection[str]) -> Touched:
    """What a change of these files touches."""
    tests = {p for p in changed if p.startswith("tests/") and p.endswith(".py")}
    named = {Path(p).stem for p in changed if p.startswith(NAMED)}
    modules = {p[:-3].replace("/", ".") for p in changed if p.startswith("tensorc_dsl/") and p.endswith(".py")}
    pages = {p for p in changed if p.startswith("docs/") and p.endswith(".md")}
    tests, named, modules, pages = (
        found if len(found) <= MANY else set[str]() for found in (tests, named, modules, pages)
    )
    words = sorted(named | pages)
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, words))})\b") if words else None
    return Touched(frozenset(tests), pattern, frozenset(modules))
