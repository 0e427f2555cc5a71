"""Holds the size of the library and of its documentation: `python -m tools.size` fails when a figure has grown.

The figures are in `tools/size.toml`. A commit lowers them freely; `--record "why"` writes the current ones, and with them the
reason of each that is higher than before. Without `--record`, the change since the last commit of `origin/main` (or `--since
COMMIT`) is shown by room.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tools" / "size.toml"
PACKAGE = "tensorc_dsl"

SMALL = 80
"""A module of fewer lines with one importer belongs in that importer."""

FIGURES = {
    "code_lines": f"lines of {PACKAGE}/ with code: neither blank, comment nor docstring",
    "files": f"modules of {PACKAGE}/",
    "doc_words": "words of the pages in docs/",
    "small_modules": f"modules under {SMALL} lines with one importer",
    "shared_stems": "modules of a room whose name has the stem of another's",
}

PARTED = {"backend", "faces", "proof", "tuning"}
"""Rooms of rooms."""

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
_PARTICLES = {"a", "and", "at", "by", "for", "in", "of", "on", "the", "to"}
_ENDINGS = re.compile(r"(?:ations?|itions?|sions?|ions?|ings?|ers?|ed|es|s|e)$")


def code_lines(text: str) -> int:
    """The number of lines with a token that is neither a comment nor of a docstring."""
    # A string that is a statement documents what stands above it: a module, a class, a function or a constant.
    documents = [
        node
        for node in statements(text)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    rows = text.splitlines()
    tripled = sum(rows[node.lineno - 1].lstrip().lstrip("rRuU").startswith('"""') for node in documents)
    if text.count('"""') == 2 * tripled and "'''" not in text and "\\\n" not in text:
        # All other strings end on their line, so that each line that is not blank has a token.
        lines = {n for n, row in enumerate(rows, 1) if (code := row.lstrip()) and not code.startswith("#")}
    else:
        lines = {
            line
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type not in _NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
    for node in documents:
        lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def statements(text: str) -> Iterator[ast.stmt]:
    """All statements of a module; their expressions, which are most of its tree, are not visited."""
    pending: list[ast.AST] = [ast.parse(text)]
    while pending:
        node = pending.pop()
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            for child in getattr(node, field, ()):
                pending.append(child)
                if isinstance(child, ast.stmt):
                    yield child


def words(text: str) -> int:
    """The number of words between spaces."""
    return len(text.split())


def room(path: str) -> str:
    """The room of a file: the folder below the package, of some rooms the one below that, or `docs/FOLDER`."""
    parts = path.split("/")
    if parts[0] == PACKAGE:
        depth = 3 if parts[1] in PARTED and len(parts) > 3 else 2
        return "/".join(parts[1:depth]) if len(parts) > 2 else PACKAGE
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def stem(name: str) -> tuple[str, ...]:
    """What a name has in common with its inflections: `filling` and `fill` have equal stems, `at_once` and `once` too."""
    words = [word for word in name.split("_") if word and word not in _PARTICLES]
    return tuple(short if len(short := _ENDINGS.sub("", word)) >= 3 else word for word in words)


def shared_stems(paths: Iterable[str]) -> int:
    """How many modules have the stem of another module of their room, beyond the first of each stem."""
    counts = Counter((room(p), stem(Path(p).stem)) for p in paths if not Path(p).stem.startswith("__"))
    return sum(count - 1 for count in counts.values())


def imported(path: str, text: str, names: Mapping[str, str]) -> set[str]:
    """The modules among `names` (paths by dotted names) that a module imports."""
    found: set[str] = set()
    package = path.removesuffix(".py").split("/")[:-1]
    for node in statements(text):
        match node:
            case ast.Import(names=aliases):
                found.update(a.name for a in aliases)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                start = package[: len(package) - level + 1] if level else []
                base = ".".join([*start, *([module] if module else [])])
                found.update(whole if (whole := f"{base}.{a.name}") in names else base for a in aliases)
            case _:
                pass
    return {names[name] for name in found if name in names} - {path}


def small_modules(texts: Mapping[str, str]) -> list[str]:
    """The modules under `SMALL` lines that exactly one other imports. `__init__` and `__main__` have another purpose."""
    names = {p.removesuffix(".py").removesuffix("/__init__").replace("/", "."): p for p in texts}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for path, text in texts.items():
        for target in imported(path, text, names):
            importers[target].add(path)
    return sorted(
        p
        for p, text in texts.items()
        if len(text.splitlines()) < SMALL and len(importers[p]) == 1 and not Path(p).stem.startswith("__")
    )


def _git(*command: str) -> str:
    return subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def sources() -> dict[str, str]:
    """The modules and pages that are in the repository, or would be after `git add`, by path."""
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard", "--", f"{PACKAGE}/*.py", "docs/*.md")
    paths = sorted(set(listed.splitlines()))
    return {p: (ROOT / p).read_text(encoding="utf-8") for p in paths if (ROOT / p).is_file()}


def measured(texts: Mapping[str, str]) -> dict[str, int]:
    """All figures of the files."""
    modules = {p: t for p, t in texts.items() if p.endswith(".py")}
    return {
        "code_lines": sum(map(code_lines, modules.values())),
        "files": len(modules),
        "doc_words": sum(words(t) for p, t in texts.items() if p.endswith(".md")),
        "small_modules": len(small_modules(modules)),
        "shared_stems": shared_stems(modules),
    }


def grown(now: Mapping[str, int], recorded: Mapping[str, int]) -> list[str]:
    """One line for each figure above the recorded one."""
    return [
        f"{key}: {now[key]}, recorded {recorded[key]} ({FIGURES[key]})" for key in FIGURES if now[key] > recorded[key]
    ]


def record_text(now: Mapping[str, int], old: Mapping[str, int], reasons: list[str], why: str) -> str:
    """The text of `size.toml` with the current figures. Raises ValueError if one grows and no reason is given."""
    higher = [f"{key} {old[key]} -> {now[key]}" for key in FIGURES if key in old and now[key] > old[key]]
    if higher and not why.strip():
        raise ValueError(f"a figure grows, so a reason is needed: {', '.join(higher)}")
    kept = [*reasons, f"{', '.join(higher)}: {why.strip()}"] if higher else reasons
    lines = ["# Written by `python -m tools.size --record WHY`. Figures fall freely; one that grows has a reason.", ""]
    lines += [f"{key} = {now[key]}" for key in FIGURES]
    lines += ["", "reasons = [", *(f"    {json.dumps(r, ensure_ascii=False)}," for r in kept), "]"]
    return "\n".join(lines) + "\n"


def changes(since: str, texts: Mapping[str, str]) -> list[str]:
    """By room: the lines of code and the words of pages that were added since a commit. Reads only the files that differ."""
    listed = _git("diff", "--name-only", "--no-renames", since, "--", PACKAGE, "docs").splitlines()
    before = set(_git("ls-tree", "-r", "--name-only", since, "--", PACKAGE, "docs").splitlines())
    paths = {p for p in listed if p.endswith((".py", ".md"))} | (set(texts) - before)
    added: Counter[tuple[str, str]] = Counter()
    for path in paths:
        if not (path.startswith(PACKAGE) if path.endswith(".py") else path.startswith("docs/")):
            continue
        new = texts.get(path, "")
        old = _git("show", f"{since}:{path}") if path in before else ""
        unit, count = ("lines", code_lines) if path.endswith(".py") else ("words", words)
        added[room(path), unit] += count(new) - count(old)
    return [f"{place:24} {count:+6} {unit}" for (place, unit), count in sorted(added.items()) if count]


def start_of_change() -> str | None:
    """The commit that the change starts from, or None where git has no such commit."""
    for candidate in (("merge-base", "HEAD", "origin/main"), ("rev-parse", "--verify", "HEAD~")):
        try:
            found = _git(*candidate).strip()
        except subprocess.CalledProcessError:
            continue
        if found != _git("rev-parse", "HEAD").strip():
            return found
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Sizes of the library and its documentation, held by a record.")
    parser.add_argument("--record", metavar="WHY", help="write the current figures, and why one of them grows")
    parser.add_argument("--since", metavar="COMMIT", help="show what was added since this commit")
    options = parser.parse_args()
    if not (ROOT / ".git").exists():
        print("sizes are not checked: this is no checkout of git")
        return 0
    texts = sources()
    now = measured(texts)
    recorded = tomllib.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if options.record is not None:
        try:
            RECORD.write_text(record_text(now, recorded, recorded.get("reasons", []), options.record), encoding="utf-8")
        except ValueError as problem:
            print(problem, file=sys.stderr)
            return 1
        return 0
    if since := options.since or start_of_change():
        print("\n".join([f"since {since[:8]}:", *changes(since, texts)]))
    if problems := grown(now, recorded):
        print("\n".join(["the sizes have grown:", *problems]), file=sys.stderr)
        print('shrink it, or say why: python -m tools.size --record "WHY"', file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
