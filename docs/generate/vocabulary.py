"""The lists of the compute layer's words, and of the schedule layer's functions and methods."""

from __future__ import annotations

from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.kinds import LIST, STR
from tensorc_dsl.faces.report import entries as rows
from tensorc_dsl.faces.report.entries import code, listing, table
from tensorc_dsl.ir.dtypes import DTYPES


def functions() -> str:
    return listing(rows.signature_rows(v.FUNCTIONS))


def compounds() -> str:
    return listing(rows.signature_rows(v.COMPOUNDS))


def methods() -> str:
    """The methods of strings and lists. Methods of blocks, loops and buffers are queries."""
    subjects = ((STR, "s."), (LIST, "list."))
    found = [row for kind, subject in subjects for row in rows.signature_rows(v.METHODS[kind], subject)]
    return listing(found)


def reducers() -> str:
    return table(rows.REDUCERS_HEAD, rows.reducer_rows().values())


def maths() -> str:
    return table(rows.MATHS_HEAD, rows.maths_rows().values())


def dtypes() -> str:
    kinds = {"float": "floating point", "int": "integer", "uint": "integer without sign", "bool": "true or false"}
    return table(
        ["type", "is", "bits", "bytes"],
        [[code(t.name), kinds[t.kind], str(t.bits), str(t.bytes)] for t in DTYPES.values()],
    )
