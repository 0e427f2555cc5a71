"""The vocabulary of schedules: functions, methods, queries, draws and primitives, with their signatures.

The signatures of primitives, draws and queries are derived from their declarations. Functions, and methods of strings and
lists, are declared here; `interp.arguments` implements them, and `tests/check/test_vocabulary.py`
fails if the two differ. The reference pages are made from these tables.
"""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.check.kinds import (
    ANY,
    BLOCK,
    BOOL,
    BUFFER,
    FLOAT,
    INSTRUCTION,
    INT,
    LIST,
    LOOP,
    NODE,
    PROGRAM,
    STR,
    TARGET,
    Base,
    Kind,
    ListOf,
    Parameter,
    Rule,
    Signature,
    kind_of,
    of_function,
)
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.primitives import ALL_STEPS
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.step import BlockRef, BufferRef, IntrinsicRef, LoopRef, NodeRef
from tensorc_dsl.schedule.trace.draws import DRAWS

GIVEN: dict[str, Kind] = {"target": TARGET, "root": PROGRAM}
"""Names that every body has."""

_NUMBERS = (ListOf(INT), ListOf(FLOAT))
_A_LIST = Parameter("list", (LIST,))
_PART = Parameter("part", (STR,))
_VALUE = Parameter("value")


def _function(doc: str, result: Kind | Rule, *params: Parameter, rest: Parameter | None = None) -> Signature:
    return Signature(params, rest, False, result, doc)


def _method(doc: str, result: Kind, *params: Parameter) -> Signature:
    return Signature(params, None, True, result, doc)


_SMALLEST = (Parameter("value", (INT, FLOAT, *_NUMBERS)),)
_FURTHER = Parameter("values", (INT, FLOAT))
_TILES = (
    Parameter("structure", (STR,)), Parameter("tiles", (ListOf(ListOf(LOOP)),)), Parameter("kinds", (ListOf(STR),), False),
)  # fmt: skip

FUNCTIONS: dict[str, Signature] = {
    "len": _function("How many elements a list has, or letters a string.", INT, Parameter("list", (LIST, STR))),
    "range": _function(
        "The ints from `start` up to `end - 1`: `range(2, 5)` is `[2, 3, 4]`; `range(n)` starts at 0.",
        ListOf(INT), Parameter("start", (INT,)), Parameter("end", (INT,), False),
    ),
    "min": _function("The smallest of the numbers, or of a list of them.", Rule.NUMBER, *_SMALLEST, rest=_FURTHER),
    "max": _function("The largest of the numbers, or of a list of them.", Rule.NUMBER, *_SMALLEST, rest=_FURTHER),
    "clamp": _function(
        "The number, kept from `low` to `high`, as in subscripts: `min(max(value, low), high)`.",
        Rule.NUMBER, Parameter("value", (INT, FLOAT)), Parameter("low", (INT, FLOAT)), Parameter("high", (INT, FLOAT)),
    ),
    "xor": _function(
        "The bits that are set in one of two ints, not in both; also in index maps.",
        INT, Parameter("a", (INT,)), Parameter("b", (INT,)),
    ),
    "sum": _function("The sum of a list of numbers; of an empty one, 0.", Rule.NUMBER, Parameter("list", _NUMBERS)),
    "product": _function(
        "The product of a list of numbers; of an empty one, 1.", Rule.NUMBER, Parameter("list", _NUMBERS)
    ),
    "any": _function(
        "Whether one of the bools is true: `any(for l in b.loops { yield l.is_open })`; of an empty list, false.",
        BOOL, Parameter("list", (ListOf(BOOL),)),
    ),
    "all": _function(
        "Whether all of the bools are true; of an empty list, true.", BOOL, Parameter("list", (ListOf(BOOL),))
    ),
    "reversed": _function("The list from its end to its start.", Rule.FIRST, _A_LIST),
    "concat": _function(
        "The elements of all lists in one list.", Rule.FIRST, rest=Parameter("lists", (LIST,), False)
    ),
    "log2": _function("The logarithm of a positive number to the base 2.", FLOAT, Parameter("value", (FLOAT,))),
    "so_far": _function(
        "What the `for` around it has yielded in the rounds before: a draw can depend on those of other loops.", LIST
    ),
    "within": _function(
        "The int, if it is in a range; otherwise the schedule is refused, and `what` says what the int counts: "
        "`within(b.threads, 1..target.threads, \"threads\")`.",
        INT, Parameter("value", (INT,)), Parameter("range", (Base.RANGE,)), Parameter("what", (STR,)),
    ),
    "tile_levels": _function(
        "The levels of `tiles` in the order that `structure` spells, a list of loops for each letter: its n-th S stands for "
        "level n of the tile of every spatial loop, and so for the other kinds. `let [blocks, steps, inner] = "
        "tile_levels(\"SRS\", tiles)` names them; `reorder` takes them all at once. `kinds`, a letter for each tile, may say "
        "otherwise.",
        ListOf(ListOf(LOOP)), *_TILES,
    ),
    "interleave": _function(
        "The loops of `tile_levels` in one list: where the n-th S stands, level n of the tile of every spatial loop.",
        ListOf(LOOP), *_TILES,
    ),
}  # fmt: skip

VALUES = FUNCTIONS.keys() - {"within"}
"""The functions that only give a value: `within` may refuse the schedule."""

_SUBJECTS: dict[type, Kind] = {
    BlockRef: BLOCK, LoopRef: LOOP, BufferRef: BUFFER, IntrinsicRef: INSTRUCTION, Program: PROGRAM, Target: TARGET,
    NodeRef: NODE,
}  # fmt: skip

METHODS: dict[Kind, dict[str, Signature]] = {
    STR: {
        "count": _method("How often a part occurs: `structure.count(l.kind)`.", INT, _PART),
        "find": _method(
            "The position of the first `part`; with `after`, behind the first `after`. -1 when there is none.",
            INT, _PART, Parameter("after", (STR,), False, True),
        ),
        "rfind": _method(
            "The position of the last `part`; with `before`, in front of the first `before`. -1 when there is none.",
            INT, _PART, Parameter("before", (STR,), False, True),
        ),
        "contains": _method("Whether a part occurs.", BOOL, _PART),
    },
    LIST: {
        "count": _method("How many elements are equal to the value.", INT, _VALUE),
        "find": _method("The position of the first element equal to the value, or -1.", INT, _VALUE),
        "contains": _method("Whether an element is equal to the value.", BOOL, _VALUE),
    },
    **{
        _SUBJECTS[subject]: {q.name: of_function(q.signature, q.result, q.doc) for q in table.values() if q.is_method}
        for subject, table in QUERIES.items()
    },
}  # fmt: skip


@frozen
class Attribute:
    """A query without parentheses: the kind of its answer, and a line that describes it."""

    kind: Kind
    doc: str


ATTRIBUTES: dict[Kind, dict[str, Attribute]] = {
    _SUBJECTS[subject]: {q.name: Attribute(kind_of(q.result), q.doc) for q in table.values() if not q.is_method}
    for subject, table in QUERIES.items()
}

COMPOUNDS: dict[str, Signature] = {
    "tile": Signature(
        (Parameter("partial", (BOOL,), False, True),), Parameter("loops…, [sizes…]", (LOOP, LIST), False), True,
        ListOf(LOOP),
        "Each loop is `split`, and all outer parts go around all inner ones: `let [i0, j0, i1, j1] = tile(i, j, [4, 16])`. "
        "A size is that of the inner part, or the factors of a `split`, as many for each loop; with `partial=true` it need "
        "not divide. The steps of a trace are those of `split` and `reorder`; `i.can_tile(j, [4, 16])` asks whether all "
        "would be accepted.",
    ),
}  # fmt: skip
"""Steps that stand for several. `interp.calls` gives them their meaning. A module of such a name goes before it."""

METHODS[LOOP] |= {f"can_{name}": replace(s, result=BOOL) for name, s in COMPOUNDS.items()}

STEPS: dict[str, Signature] = {p.name: of_function(p.signature, p.result, p.doc) for p in ALL_STEPS.values()}

DISTRIBUTIONS: dict[str, Signature] = {d.name: of_function(d.signature, d.result, d.doc) for d in DRAWS.values()}


def methods_of(kind: Kind) -> dict[str, list[Signature]]:
    """The methods of values of the kind, by name; for an unknown kind, the methods of all kinds."""
    out: dict[str, list[Signature]] = {}
    for subject, table in METHODS.items():
        if kind == ANY or subject == kind or (isinstance(kind, ListOf) and subject == LIST):
            for name, signature in table.items():
                out.setdefault(name, []).append(signature)
    return out
