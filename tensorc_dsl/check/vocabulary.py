"""What a schedule may call and ask: distributions, functions, methods, attributes, with what the checker knows of each.

Primitives are not listed: their signatures are their own declarations (`schedule.primitive`). `interp` gives these names
their meaning; `tests/check/test_vocabulary.py` fails when the two disagree.
"""

from __future__ import annotations

from dataclasses import dataclass

Kind = str
"""What a value is, as far as the checker knows: a kind below, `[kind]` for a list of it, or "" for anything."""

BLOCK, LOOP, BUFFER, PROGRAM, TARGET = "Block", "Loop", "Buffer", "Program", "Target"
INT, FLOAT, STR, BOOL, LIST = "int", "float", "str", "bool", "list"

PARAM_TYPES = (BLOCK, LOOP, BUFFER, PROGRAM, INT, FLOAT, STR, BOOL, LIST)
"""What a parameter of a module may be said to be."""

TARGET_KINDS = ("llvm",)


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters in order, and how many of them must be given; `rest` if any number may follow."""

    params: tuple[str, ...]
    required: int
    rest: bool = False
    keywords: bool = True
    result: Kind = ""


DISTRIBUTIONS: dict[str, Signature] = {
    "sample_perfect_tile": Signature(("loop", "parts", "max_innermost"), 2, result=f"[{INT}]"),
    "sample_categorical": Signature(("values",), 1),
}

LATER_DISTRIBUTIONS = ("sample_partitioned_tile", "sample_compute_location", "sample_permutation", "sample_int")
"""Named in the language, without a meaning so far."""

FUNCTIONS: dict[str, Signature] = {
    "len": Signature(("list",), 1, keywords=False, result=INT),
    "range": Signature(("start", "end"), 1, keywords=False, result=f"[{INT}]"),
    "min": Signature(("value",), 1, rest=True, keywords=False),
    "max": Signature(("value",), 1, rest=True, keywords=False),
    "reversed": Signature(("list",), 1, keywords=False),
    "concat": Signature((), 0, rest=True, keywords=False),
    "product": Signature(("list",), 1, keywords=False),
    "log2": Signature(("value",), 1, keywords=False, result=FLOAT),
    "interleave": Signature(("structure", "tiles", "kinds"), 2, keywords=False, result=LIST),
}

METHODS: dict[Kind, dict[str, Signature]] = {
    STR: {
        "count": Signature(("part",), 1, keywords=False, result=INT),
        "find": Signature(("part",), 1, keywords=False, result=INT),
        "rfind": Signature(("part",), 1, keywords=False, result=INT),
        "contains": Signature(("part",), 1, keywords=False, result=BOOL),
    },
    LIST: {
        "count": Signature(("value",), 1, keywords=False, result=INT),
        "contains": Signature(("value",), 1, keywords=False, result=BOOL),
    },
}

ATTRIBUTES: dict[Kind, dict[str, Kind]] = {
    BLOCK: {
        "loops": f"[{LOOP}]", "spatial_loops": f"[{LOOP}]", "reduce_loops": f"[{LOOP}]", "name": STR,
        "reads": f"[{BUFFER}]", "writes": f"[{BUFFER}]", "producers": f"[{BLOCK}]", "consumers": f"[{BLOCK}]",
        "has_reuse": BOOL, "is_output": BOOL, "is_reduction": BOOL, "is_injective": BOOL,
    },
    LOOP: {"extent": INT, "kind": STR, "name": STR, "is_serial": BOOL},
    BUFFER: {"name": STR, "shape": f"[{INT}]", "bytes_per_element": INT, "is_param": BOOL},
    PROGRAM: {"root": PROGRAM, "blocks": f"[{BLOCK}]"},
    TARGET: {
        "kind": STR, "cpu": STR, "features": STR, "vector_bits": INT, "cores": INT, "l1": INT, "l2": INT, "l3": INT,
        "vector_registers": INT,
    },
}  # fmt: skip

GIVEN: dict[str, Kind] = {"target": TARGET, "root": PROGRAM}
"""Names that every body has."""
