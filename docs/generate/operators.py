"""The computes of the library: operators, each with its names in TVM's suite, and those for images."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from tensorc_dsl.faces.report.entries import code, library, listing, table
from tensorc_dsl.syntax import tree

_SENTENCE = re.compile(r"(?<=\.)\s+")


def suite(doc: str) -> list[str]:
    """The names by which TVM's suite has it: the words in capitals where the description speaks of that."""
    said = " ".join(s for s in _SENTENCE.split(doc) if "TVM's suite" in s)
    return [word for word in re.findall(r"\b[A-Z\d_]{3,}\b", said) if word != "TVM"]


def is_what(doc: str) -> str:
    """The first sentence of a description that does not speak of the suite: `explain` has all of it."""
    sentences = _SENTENCE.split(" ".join(doc.partition("\n\n")[0].split()))
    return next((s for s in sentences if "TVM's suite" not in s), "")


def operators() -> str:
    return table(
        ["operator", "file", "is", "suite"],
        [[*_row(file, item), ", ".join(suite(item.doc))] for file, item in _computes("std.ops.")],
    )


def images() -> str:
    """The computes of each file: `described_images` says what they are."""
    files: defaultdict[str, list[str]] = defaultdict(list)
    for path, item in _computes("std.image."):
        files[path.rpartition(".")[2]].append(code(item.name))
    return "\n".join(f"- {file}: {', '.join(names)}" for file, names in files.items())


def described_images() -> str:
    return listing([name, f"({file})", says] for name, file, says in (_row(f, i) for f, i in _computes("std.image.")))


def _computes(folder: str) -> Iterator[tuple[str, tree.ComputeDef]]:
    for file in library():
        if file.path.startswith(folder):
            yield from ((file.path, item) for item in file.items if isinstance(item, tree.ComputeDef))


def _row(path: str, item: tree.ComputeDef) -> list[str]:
    return [code(item.name), path.rpartition(".")[2], is_what(item.doc)]


def of_torch() -> str:
    """The operators of a module of PyTorch that are translated, in alphabetical order."""
    from tensorc_dsl.graph.torch_export import COMPLEX, TARGETS

    return (
        ", ".join(f"`{name}`" for name in sorted({*TARGETS, *COMPLEX}) if not name.startswith("_") and "::" not in name)
        + "."
    )


def of_models() -> str:
    """The operators that an imported model may have, in alphabetical order."""
    from tensorc_dsl.graph.control import CONTROL
    from tensorc_dsl.graph.expanding import EXPANSIONS
    from tensorc_dsl.graph.folding import EVALUATORS
    from tensorc_dsl.graph.importing import TABLE
    from tensorc_dsl.graph.runtime_operators import RUNTIME

    computed = {*TABLE, *EXPANSIONS, *CONTROL}
    folded = {*EVALUATORS, "Shape", "Size"} - computed
    own = {name.rpartition(".")[2] for name in RUNTIME}
    shown, constant, runtime = (", ".join(f"`{n}`" for n in sorted(some)) for some in (computed, folded, own))
    return f"{shown}; of constants alone also {constant}; of ONNX Runtime's domain `com.microsoft` {runtime}."
