"""What a user's rules for groups change on a model: how many calls and tasks there are, and by turns how long a call takes.

`python -m bench.models.own_rules RULES SPACE FILE…`, such as `examples/own_groups.tsched mine`, of ONNX files, with `--shape
NAME=SIZES` where sizes are open, and `--groups` to compile and run nothing. Both models have the recorded schedules of their
tasks: where there are none, tasks that other rules make are compared as they are untuned.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

import tensorc_dsl
from tensorc_dsl.check.models import Call
from tensorc_dsl.faces.api.models import LoadedModel
from tensorc_dsl.tuning.measure.in_context import by_turns

SECONDS = 20.0
"""How long the two models are timed, by turns."""

RULES_OF_IMPORTS = "use std.graph\n"


@dataclass(frozen=True, slots=True)
class Pair:
    """A model with the rules of the library, and with those of a user."""

    plain: LoadedModel
    own: LoadedModel

    def groups(self) -> str:
        """How many calls and tasks both have, and the tasks that only one has."""
        sizes = [f"{_calls(m)} calls of {len(m.tasks)} tasks" for m in (self.plain, self.own)]
        made, gone = (
            sorted(a.tasks.keys() - b.tasks.keys()) for a, b in ((self.own, self.plain), (self.plain, self.own))
        )
        return f"{sizes[0]}, by its own rules {sizes[1]}: {len(gone)} tasks less {gone}, {len(made)} more {made}"

    def times(self) -> str:
        """The medians of both by turns, and how far their outputs are apart, relative to the largest value."""
        inputs = self.plain.random_inputs()
        made = [list(m.outputs_of(*inputs.values()).values()) for m in (self.plain, self.own)]
        apart = max(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)) for a, b in zip(*made, strict=True))
        turns = by_turns([lambda m=m: m(*inputs.values()) for m in (self.plain, self.own)], SECONDS)
        plain, own = (median(t) for t in turns)
        faster = f"{plain / own:.3f} times as fast, {apart:.0e} apart"
        return f"{plain * 1e3:.2f} ms, by its own rules {own * 1e3:.2f} ms, {faster}"


def pair(path: Path, rules: Path, space: str, shapes: dict[str, tuple[int, ...]], threads: int, folder: Path) -> Pair:
    """Both models of an ONNX file, imported into a folder."""
    plain = Path(tensorc_dsl.import_onnx(path, folder / "plain.tsched", shapes=shapes))
    shutil.copy(rules, folder / "rules.tsched")
    own = folder / "own.tsched"
    text = plain.read_text()
    assert RULES_OF_IMPORTS in text
    own.write_text(text.replace(RULES_OF_IMPORTS, f"use rules.{{{space}}}\n", 1))
    plain_model, own_model = (tensorc_dsl.load_model(f, threads=threads) for f in (plain, own))
    return Pair(plain_model, own_model)


def _calls(model: LoadedModel) -> int:
    return sum(isinstance(s, Call) for s in model.plan.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rules", type=Path)
    parser.add_argument("space")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=SIZES")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--groups", action="store_true")
    args = parser.parse_args()
    shapes = {n: tuple(map(int, s.split(","))) for n, s in (text.split("=") for text in args.shape)}
    for path in args.files:
        with tempfile.TemporaryDirectory() as folder:
            both = pair(path, args.rules, args.space, shapes, args.threads, Path(folder))
            print(f"{path.stem}: {both.groups()}", flush=True)
            if not args.groups:
                print(f"{path.stem}: {both.times()}", flush=True)


if __name__ == "__main__":
    main()
