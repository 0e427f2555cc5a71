"""The function that fills each marker, of the repository's pages and of the site's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.generate import (
    architecture,
    beside,
    commands,
    decisions,
    editors,
    errors,
    grammar,
    layers,
    maths,
    modules,
    operators,
    order,
    python,
    schedule,
    vocabulary,
)
from docs.generate.pages import Part

PARTS: dict[str, Part] = {
    "primitives": schedule.primitives,
    "kept-bits": order.kept_bits,
    "compounds": vocabulary.compounds,
    "primitive-names": schedule.primitive_names,
    "draws": schedule.draws,
    "queries": schedule.queries,
    "functions": vocabulary.functions,
    "methods": vocabulary.methods,
    "reducers": vocabulary.reducers,
    "maths": vocabulary.maths,
    "maths-accuracy": maths.accuracy,
    "dtypes": vocabulary.dtypes,
    "common-options": commands.common_options,
    "shared-options": commands.shared_options,
    "python-names": python.names,
    "only-here": beside.only_here,
    "images": operators.images,
    "model-operators": operators.of_models,
    "operators": operators.operators,
    "decisions": decisions.decisions,
    "layers": layers.layers,
}

SITE_PARTS: dict[str, Part] = {
    "commands": commands.commands,
    "errors": errors.errors,
    "images-described": operators.described_images,
    "modules": modules.modules,
    "python": python.interface,
    "syntax": grammar.syntax,
    "torch-operators": operators.of_torch,
}
"""Long lists of what `explain`, `--help` and the sources have too."""

FILES: dict[Path, Callable[[], str]] = {**editors.FILES, architecture.PICTURE: architecture.picture}
"""Files that are generated as a whole."""
