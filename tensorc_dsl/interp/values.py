"""What a schedule expression can be worth, and the errors of evaluating one."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.diagnostic import Diagnostic, Note, TschedError, help_note
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.primitive import BlockRef, BufferRef, IndexMap, LoopRef
from tensorc_dsl.source import Span


@dataclass(frozen=True, slots=True)
class ProgramRef:
    """The program as a whole; `p.root` is the same."""


@dataclass(frozen=True, slots=True)
class OpenFactor:
    """`_` among the factors of a split."""


Plain = int | float | str | bool
Scalar = Plain | OpenFactor | LoopRef | BlockRef | BufferRef | ProgramRef | Target | IndexMap | None


@dataclass(frozen=True, slots=True)
class Drawn:
    """A value that depends on draws, with the straight-line code that computes it: a trace says that, not the number.

    So deleting a pin from a trace reopens everything that followed from it.
    """

    value: Plain | IndexMap | tuple[Plain, ...]
    code: str
    tight: bool = True
    """The code needs no parentheses as an operand."""


Value = Scalar | Drawn | tuple["Value", ...]


def plain(value: Value) -> Value:
    """The value without its provenance, lists included."""
    match value:
        case Drawn(value=inner):
            return inner
        case tuple():
            return tuple(plain(v) for v in value)
        case _:
            return value


def kind_of(value: Value) -> str:
    """What messages call the kind of a value."""
    match plain(value):
        case bool():
            return "a bool"
        case int():
            return "an int"
        case float():
            return "a float"
        case str():
            return "a string"
        case tuple():
            return "a list"
        case LoopRef():
            return "a loop"
        case BlockRef():
            return "a block"
        case BufferRef():
            return "a buffer"
        case ProgramRef():
            return "the program"
        case Target():
            return "the target"
        case IndexMap():
            return "an index map"
        case OpenFactor():
            return "`_`"
        case _:
            return "nothing"


def error(code: str, message: str, span: Span | None, label: str = "", help: str = "", *notes: Note) -> TschedError:
    extra = (help_note(help),) if help else ()
    return TschedError(Diagnostic(code, message, span, label, (*notes, *extra)))
