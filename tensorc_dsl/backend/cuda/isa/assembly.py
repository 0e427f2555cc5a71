"""The assembly of an instruction for GPUs: its text with the operands that it names, and whether these are what it needs.

A word that is no opcode, number or name with dots or `%` is an operand. One in a fragment stands for the lane's registers of
it, `{r0, r1}`, elements of less than 32 bits packed, the first one lowest; with a number, `C1`, for that register alone.
One in memory stands for the address that the lane gives, or for that with the number; one with a descriptor for this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tensorc_dsl.backend.cuda.isa.mma import difference
from tensorc_dsl.backend.cuda.isa.tma import tma_difference
from tensorc_dsl.backend.cuda.isa.wgmma import wgmma_difference
from tensorc_dsl.base.diagnostic import Diagnostic, problem
from tensorc_dsl.base.source import Span
from tensorc_dsl.ir.expr import loads
from tensorc_dsl.ir.program import Buffer, Intrinsic
from tensorc_dsl.ir.warp import GROUP, LANES, MEMORY, SWIZZLES, Described, Held, described, held, is_described, is_tma
from tensorc_dsl.syntax.names import near

_OTHER = re.compile(r"[^\w\s.,;:\[\]{}%+\-]")
"""What no text may have: it stands between quotes, and `$` and `@` have meanings of their own."""

_WORD = re.compile(r"[%.\w]+")

_DECLARED = re.compile(r"\.reg\s+\.\w+\s+([\w\s,]+)")


@problem(
    "E0674",
    "the text has a `{mark}`, which has no place in it",
    help="write opcodes, operands, numbers and `.,;:[]{{}}%+-`",
)
def OTHER_MARK(*, mark: str) -> None: ...
@problem("E0674", "there is no operand `{name}`")
def UNKNOWN_WORD(*, name: str) -> None: ...
@problem("E0674", "the text does not name `{name}`", help="each operand that the effect stores or reads takes part")
def NOT_NAMED(*, name: str) -> None: ...
@problem("E0674", "`{name}` is beyond the {count} {what} that a lane has of it", help="they are counted from 0")
def NO_SUCH(*, name: str, count: int, what: str) -> None: ...
@problem(
    "E0674",
    'no layout says where the lanes of a warp have `{name}`, which is in "{scope}"',
    help='say it for each of its elements, `layout "{scope}" ({params}) -> ({places})`, for lanes 0 to {last}; {what}',
)
def NOT_IN_LANES(*, name: str, scope: str, params: str, places: str, last: int, what: str) -> None: ...
@problem(
    "E0674",
    'no layout says how a descriptor has `{name}`, which is in "{scope}"',
    help='say it for each of its elements, `layout "{scope}" ({params}) -> (line: …, element: …, swizzle: …)`: lines are '
    "eight or a multiple, of whole units of 16 bytes, and a swizzle has {swizzles} bytes",
)
def NOT_DESCRIBED(*, name: str, scope: str, params: str, swizzles: str) -> None: ...
@problem("E0674", "two lanes store one element of `{name}`", help="a lane stores what no other one does")
def STORED_TWICE(*, name: str) -> None: ...
@problem("E0674", "`{opcode}` does something else: {why}")
def OTHER_MEANING(*, opcode: str, why: str, repair: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Ref:
    """An operand in a text: all its registers or its first address (no number), or one of them."""

    name: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A statement of a text: braces before it, the opcode, and what follows it. At the end there may be braces alone."""

    braces: str
    opcode: str
    rest: tuple[str | Ref, ...]

    @property
    def refs(self) -> tuple[Ref, ...]:
        """The operands, in order."""
        return tuple(x for x in self.rest if isinstance(x, Ref))


def lines_of(i: Intrinsic, code: str) -> tuple[Line, ...]:
    """The statements of a text with their operands. A word that names none is left as a `Ref` of that name.

    Registers that the text declares, `{ .reg .b32 t; … }`, are its own.
    """
    names = {b.name for b in i.operands}
    own = {name for m in _DECLARED.finditer(code) for name in re.findall(r"\w+", m[1])}
    return tuple(_line(part.strip(), names, own - names) for part in code.split(";") if part.strip())


def _line(text: str, names: set[str], own: set[str]) -> Line:
    braces = re.match(r"[{}\s]*", text)
    assert braces is not None  # it matches nothing, too
    opcode, _, rest = text[braces.end() :].partition(" ")
    out: list[str | Ref] = []
    end = 0
    for m in _WORD.finditer(rest):
        word = m[0]
        if re.match(r"[A-Za-z_]\w*$", word) and word not in own:
            out += [rest[end : m.start()], _ref(word, names)]
            end = m.end()
    return Line(braces[0], opcode, (*out, rest[end:]))


def _ref(word: str, names: set[str]) -> Ref:
    plain = word.rstrip("0123456789")
    if word in names or plain not in names:
        return Ref(word)
    return Ref(plain, int(word[len(plain) :]))


def assembly_faults(i: Intrinsic, code: str, span: Span) -> Iterator[Diagnostic]:
    """What is wrong with a text for GPUs."""
    if mark := _OTHER.search(code):
        yield OTHER_MARK(span, mark=mark[0])
        return
    operands = {b.name: b for b in i.operands}
    lines = lines_of(i, code)
    used = dict.fromkeys(x.name for line in lines for x in line.refs)
    unknown = [name for name in used if name not in operands]
    for name in unknown:
        yield UNKNOWN_WORD(span, near(name, operands, f"declare `{name}` first"), name=name)
    for name in dict.fromkeys((i.store.buffer, *(x.buffer for x in loads(i.store.value)))):
        if name not in used:
            yield NOT_NAMED(span, name=name)
    places = {name: held(i, operands[name]) or described(i, operands[name]) for name in used if name in operands}
    for name, place in places.items():
        if place is None:
            yield _nowhere(operands[name], span)
        elif (
            isinstance(place, Held)
            and name == i.store.buffer
            and len({e for one in place.elements for e in one}) < len(place.elements) * place.count
        ):
            yield STORED_TWICE(span, name=name)
    found = {name: place for name, place in places.items() if place is not None}
    for x in dict.fromkeys(x for line in lines for x in line.refs if x.name in found):
        place = found[x.name]
        if isinstance(place, Described):
            continue
        count = place.addresses or place.registers
        if x.number is not None and x.number >= count:
            what = "addresses" if place.addresses else "registers"
            yield NO_SUCH(span, name=f"{x.name}{x.number}", count=count, what=what)
    if len(found) == len(used) == len(operands):
        warps = {name: x for name, x in found.items() if isinstance(x, Held) and len(x.elements) < GROUP}
        if len(warps) == len(found):
            yield from _meanings(i, lines, warps, span)
        else:
            known = tma_difference if is_tma(i) else wgmma_difference
            other = known(i, [_plain(x) for x in lines if x.opcode], found)
            if other is not None:
                yield OTHER_MEANING(span, opcode=lines[-1].opcode or lines[-2].opcode, why=other[0], repair=other[1])


def _plain(line: Line) -> str:
    """A statement as text, without braces."""
    rest = (x if isinstance(x, str) else f"{x.name}{'' if x.number is None else x.number}" for x in line.rest)
    return f"{line.opcode} {''.join(rest)}".strip()


def _meanings(i: Intrinsic, lines: tuple[Line, ...], found: dict[str, Held], span: Span) -> Iterator[Diagnostic]:
    for line in lines:
        operands = _groups(line, found)
        other = None if operands is None else difference(i, line.opcode, operands)
        if other is not None:
            yield OTHER_MEANING(span, opcode=line.opcode, why=other.why, repair=other.repair)


def _groups(line: Line, found: dict[str, Held]) -> tuple[Held, ...] | None:
    """The operands of a statement: a whole one, or registers of one in braces, `{C0, C1}`; None if others take part."""
    out: list[Held] = []
    inside: list[Ref] | None = None
    for x in line.rest:
        if isinstance(x, Ref):
            if inside is not None:
                inside.append(x)
            elif x.number is None:
                out.append(found[x.name])
            else:
                return None
            continue
        if re.search(r"[A-Za-z_]", x):
            return None
        for brace in re.findall(r"[{}]", x):
            if brace == "{":
                inside = []
                continue
            names = {y.name for y in inside or ()}
            numbers = [y.number for y in inside or () if y.number is not None]
            if len(names) != 1 or len(numbers) != len(inside or ()):
                return None
            whole = found[names.pop()]
            if whole.addresses or max(numbers) >= whole.registers:
                return None
            out.append(whole.only(numbers))
            inside = None
    return tuple(out)


def _nowhere(b: Buffer, span: Span) -> Diagnostic:
    dims = "ijkl"[: len(b.shape)]
    if is_described(b.scope):
        swizzles = ", ".join(map(str, SWIZZLES))
        return NOT_DESCRIBED(span, name=b.name, scope=b.scope, params=", ".join(dims), swizzles=swizzles)
    inward = b.scope in MEMORY
    return NOT_IN_LANES(
        span,
        name=b.name,
        scope=b.scope,
        params="lane, element" if inward else ", ".join(dims),
        places=", ".join(f"{d}: …" for d in dims) if inward else "lane: …, reg: …",
        last=LANES - 1,
        what="a lane gives the address of element 0, and the others are adjacent"
        if inward
        else "every lane has equally many, counted from 0",
    )
