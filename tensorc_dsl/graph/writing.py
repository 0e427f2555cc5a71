"""Writes an imported model as the text of a `.tsched` file: its computes, and the model that calls them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tensorc_dsl.graph.calls import Imported
from tensorc_dsl.graph.graph import Array, Tensor, type_of
from tensorc_dsl.syntax.format import quoted
from tensorc_dsl.syntax.highlight.words import CONSTANTS, RESERVED

_OTHER = re.compile(r"\W+", re.ASCII)


def word_of(name: str) -> str:
    """A name of the language like a name of a file: letters, digits and `_`."""
    text = _OTHER.sub("_", name).strip("_")
    if not text or text[0].isdigit():
        text = f"v{text}"
    return f"{text}_" if text in (*RESERVED, *CONSTANTS) else text


@dataclass(slots=True)
class _Names:
    """Words for the values of a model, each its own."""

    words: dict[str, str]
    taken: set[str]

    def add(self, name: str) -> str:
        if name not in self.words:
            word = stem = word_of(name)
            number = 2
            while word in self.taken:
                word, number = f"{stem}_{number}", number + 1
            self.words[name] = word
            self.taken.add(word)
        return self.words[name]


DIGEST = "{digest}"
"""Stands in the text for the digest of the file of weights, which is made after it."""


def written(model: Imported, name: str, origin: str, weights: str) -> tuple[str, dict[str, Array]]:
    """The text of the file, with DIGEST in it, and the weights by their names in it.

    `origin` is the file that was imported, and `weights` the name of the file of weights.
    """
    names = _Names({}, set())
    inputs = _declared((names.add(n), t) for n, t in model.inputs.items())
    outputs = _declared((names.add(n), model.types[n]) for n in model.outputs)
    tensors = {names.add(n): v for n, v in model.constants.items()}
    stored = _declared((word, type_of(v)) for word, v in tensors.items())
    ends = set(model.outputs)
    lines: list[str] = []
    for step in model.steps:
        apart = ends.intersection(step.results) if not ends.issuperset(r for r in step.results if r) else set[str]()
        # A call with results of which some are outputs of the model: these get their names afterwards.
        held = [f"{r}/value" if r in apart else r for r in step.results]
        let = "" if ends.issuperset(r for r in held if r) else "let "
        places = [names.add(r) if r else "_" for r in held]
        given = [names.words[a] for a in step.arguments]
        left = places[0] if len(places) == 1 else f"({', '.join(places)})"
        if step.compute:
            lines.append(f"{let}{left} = {step.compute}({', '.join(given)})")
        else:
            lines.append(f"{let}{left} = reshape({given[0]}, {list(model.types[step.results[0]].shape)})")
        lines += [
            f"{names.words[r]} = reshape({word}, {list(model.types[r].shape)})"
            for r, word in zip(step.results, places, strict=True)
            if r in apart
        ]
    computes = "\n".join(d.text(n) for n, d in model.computes.items())
    clause = f'\nweights {quoted(weights)} sha256 "{DIGEST}" ({stored})\n' if tensors else " "
    body = "".join(f"    {line}\n" for line in lines)
    word = word_of(name)
    while word in model.computes:
        word += "_"
    head = f"/// Imported from {' '.join(origin.split())}.\nmodel {word}({inputs}) -> {outputs}{clause}"
    return f"use std.cpu\nuse std.graph\n\n{computes}\n{head}{{\n{body}}}\n", tensors


_STAMP = "// Written by tensorc-dsl import; SHA-256 of the rest: {digest}"


def stamped(text: str) -> str:
    """The text below a line that tells whether it has been changed."""
    return f"{_STAMP.format(digest=sha256(text.encode()).hexdigest())}\n{text}"


def is_imported(path: Path) -> bool:
    """Whether a file is as an import wrote it."""
    try:
        head, _, rest = path.read_bytes().partition(b"\n")
    except OSError:
        return False
    return head == _STAMP.format(digest=sha256(rest).hexdigest()).encode()


def _declared(values: Iterable[tuple[str, Tensor]]) -> str:
    return ", ".join(f"{word}: {type_}" for word, type_ in values)
