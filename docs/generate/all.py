"""The function that fills each marker."""

from __future__ import annotations

from docs.generate import (
    beside,
    commands,
    decisions,
    declared,
    errors,
    grammar,
    maths,
    modules,
    operators,
    rooms,
    vocabulary,
)
from docs.generate.pages import Part

PARTS: dict[str, Part] = {
    "syntax": grammar.syntax,
    "primitives": declared.primitives,
    "compounds": vocabulary.compounds,
    "primitive-names": declared.primitive_names,
    "draws": declared.draws,
    "queries": declared.queries,
    "functions": vocabulary.functions,
    "methods": vocabulary.methods,
    "reducers": vocabulary.reducers,
    "maths": vocabulary.maths,
    "maths-accuracy": maths.accuracy,
    "dtypes": vocabulary.dtypes,
    "commands": commands.commands,
    "common-options": commands.common_options,
    "errors": errors.errors,
    "only-here": beside.only_here,
    "modules": modules.modules,
    "operators": operators.operators,
    "decisions": decisions.decisions,
    "rooms": rooms.rooms,
}
