"""Random graphs of computes that call each other, on every path: `python -m campaigns.call_graphs --seed 0 --count 100`.

Each graph is up to 12 calls deep, and each compute of it calls up to three of those below, as whole stages and inside of
expressions. It is checked, expanded and proved, and its findings, names and completions are asked for as an editor asks. Each
part takes less than a second of processor time, whether the graph is accepted or refused with a code.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from time import process_time

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.positions import references
from tensorc_dsl.check.scope import CheckedFile, load_file
from tensorc_dsl.faces.api import Task, TaskFile
from tensorc_dsl.faces.lsp.completion import completion
from tensorc_dsl.faces.lsp.documents import Documents, uri_of
from tensorc_dsl.faces.lsp.findings import diagnostics
from tensorc_dsl.faces.lsp.records import Records
from tensorc_dsl.faces.packages import Resolver
from tensorc_dsl.ir.target import Target

DEEPEST = 12
MOST_SECONDS = 1.0

Part = Callable[[], set[str]]
"""A part of the work, which returns the codes of its findings."""


def call_graph(seed: int) -> str:
    """A file of computes `c0`, `c1`, … that call earlier ones, a schedule for the last one, and its task."""
    rng = Random(seed)
    depth = rng.randint(1, DEEPEST)
    lines = ["compute c0(A: f32[N]) -> B: f32[N] { B[i] = A[i] + 1.0 }"]
    for n in range(1, depth + 1):
        stages, read, whole = list[str](), ["A"], False
        for k in range(rng.choice((1, 1, 1, 1, 2, 2, 3))):
            callee = n - 1 if k == 0 else rng.randrange(n)
            name = rng.choice(("X", "T", f"v{k}")) + str(k)
            stages.append(f"    let {name} = c{callee}({rng.choice(read)})")
            read.append(name)
            if rng.random() < 0.2:
                stages.append(f"    let {name}_s[i] = {name}[i] * sum[k in 3] {name}[i] * f32(k)")
                read.append(f"{name}_s")
        if len(read) == 2 and rng.random() < 0.2:
            stages, whole = [f"    B = c{n - 1}(A)"], True
        inside = f"c{rng.randrange(n)}(A)[i]" if rng.random() < 0.15 else "A[i]"
        if not whole:
            stages.append(f"    B[i] = {read[-1]}[i] * 2.0 + {inside}")
        lines += [f"compute c{n}(A: f32[N]) -> B: f32[N] {{", *stages, "}"]
    lines += [f"schedule s for c{depth} {{", "}", f"task t = c{depth}(N={rng.choice((1, 7, 64))}) with s"]
    return "\n".join(lines) + "\n"


def parts(text: str, folder: Path) -> dict[str, Part]:
    """The parts of the work on a file, in order: later ones use the results of earlier ones."""
    source = Source(str(folder / "graph.tsched"), text)
    checked: list[CheckedFile] = []

    def task() -> Task | None:
        return None if checked[0].errors else TaskFile(checked[0], Target())["t"]

    def check() -> Iterable[str]:
        checked.append(load_file(source, Resolver(source.name)))
        return (d.code for d in checked[0].diagnostics)

    def expand() -> Iterable[str]:
        if (t := task()) is not None:
            str(t.check())
        return ()

    def verify() -> Iterable[str]:
        if (t := task()) is None:
            return ()
        proof = type(t.verify(t.check())).__name__
        return () if proof == "Valid" else (proof,)

    def editor() -> Iterable[str]:
        documents = Documents()
        document = documents.put(uri_of(folder / "graph.tsched"), text, 1)
        known = documents.analysis(document)
        references(known.checked)
        completion(known, known.text.position(text.index("{\n}\ntask") + 1), False, Records(folder / "none.sqlite"))
        return (str(d.code) for d in diagnostics(known, document))

    def refused(part: Callable[[], Iterable[str]]) -> Part:
        def run() -> set[str]:
            try:
                return set(part())
            except TschedError as e:
                return {d.code for d in e.diagnostics}

        return run

    return {
        name: refused(part)
        for name, part in (("check", check), ("expand", expand), ("verify", verify), ("editor", editor))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    slowest: dict[str, tuple[float, int]] = {}
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        for work in parts(call_graph(0), Path(name)).values():
            work()  # what is made once is no work of one graph
        for seed in range(options.seed, options.seed + options.count):
            found: set[str] = set()
            for part, work in parts(call_graph(seed), Path(name)).items():
                begin = process_time()
                found |= work()
                slowest[part] = max(slowest.get(part, (0.0, seed)), (process_time() - begin, seed))
            ends[", ".join(sorted(found)) or "proved"] += 1
    print("; ".join(f"{count} × {end}" for end, count in sorted(ends.items())))
    for part, (seconds, seed) in slowest.items():
        print(f"{part}: {seconds:.2f} s at most, with seed {seed}")
    sys.exit(any(seconds > MOST_SECONDS for seconds, _ in slowest.values()))


if __name__ == "__main__":
    main()
