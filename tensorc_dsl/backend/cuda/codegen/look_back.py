"""Writes how a block passes the value of a scan on: what its thread makes known, where it looks, and for what it waits.

A word of 8 bytes is stored and loaded as a whole. A value of at most 4 bytes is in one word with its flag, so who sees the
flag has the value. Of others the flag is stored behind the value by a *release*, and loaded before it by an *acquire*: who
sees the flag sees what was stored before it (PTX ISA, "Memory Consistency Model", causality order). A flag is 0 at first,
`ADDS` when what the step adds is known, and `DONE` when its value is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, Protocol

from tensorc_dsl.backend.cuda.lower.kernels import STEP, LookBack
from tensorc_dsl.backend.cuda.lower.look_back import Words, terms_of
from tensorc_dsl.backend.llvm.codegen.body import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import ONE, ZERO, Compare, Expr, Var, conjunction, sub, substitute
from tensorc_dsl.lower.flat import Flat

ADDS, DONE = 1, 2
"""The flags of a step whose value is not known yet, and of one whose value is."""

HEAD = 1
"""The words before those of the first step: the counter."""

FLAG_BITS = 32
"""The low bits of a packed word, which are its flag."""

Seen = Literal["relaxed", "acquire", "known"]
"""How a word is loaded: at any time, before all that is loaded behind it, or behind an acquire that makes it known."""


SEEN: tuple[Seen, ...] = ("relaxed", "acquire", "known")
CALLS = ("take", "put", "get")
"""The functions of the emulation by which a word is accessed, in the order of their table, and the numbers of `Seen`."""


class Passing(Protocol):
    """What a thread does with words that other blocks load and store at once."""

    f: Function
    expressions: Expressions

    def write(self, body: tuple[Flat, ...]) -> None: ...
    def counted(self, var: str, begin: str, end: str, step: int, write: Callable[[], None]) -> None: ...
    def under(self, cond: Expr, body: Callable[[], None]) -> None: ...

    def put(self, chain: str, at: str, word: str, *, release: bool) -> None:
        """Write that a word is stored, behind all that this block has stored before if it is a release."""
        ...

    def get(self, chain: str, at: str, seen: Seen) -> str:
        """Write that a word is loaded."""
        ...

    def pause(self) -> None:
        """Write that a thread looks again."""
        ...


@dataclass(frozen=True, slots=True)
class Looking:
    """Writes a `LookBack`."""

    to: Passing
    s: LookBack
    words: Words
    """The words of a step."""

    def write(self) -> None:
        """Write all of it, in the first thread."""
        own, first = self.s.step, Compare(">", self.s.step, ZERO)
        self.to.under(self._made(own), lambda: self._tell(first))
        before = conjunction((first, self._made(sub(own, ONE))))
        assert before is not None
        self.to.under(before, self._find)
        self.to.under(self._made(own), self._finish)

    def _made(self, step: Expr) -> Expr:
        """Whether a step is made."""
        cond = conjunction(tuple(substitute(c, {STEP: step}) for c in self.s.conds))
        return Compare("==", ZERO, ZERO) if cond is None else cond

    def _at(self, step: str, body: Callable[[], None]) -> None:
        """Write the body, with a value for the step."""
        with self.to.expressions.scope.bound({STEP: step}):
            body()

    def _first_word(self, step: str) -> str:
        """The number of the first word of a step."""
        slot = ""

        def go() -> None:
            nonlocal slot
            slot = str(self.to.expressions.index(self.s.slot))

        self._at(step, go)
        f = self.to.f
        return f.op(f"add i64 {f.op(f'mul i64 {slot}, {self.words.count}')}, {HEAD}")

    def _tell(self, first: Expr) -> None:
        """Write code that publishes the term of the own step, unless it is the first, for whose term no block waits."""
        own = str(self.to.expressions.index(self.s.step))
        self._at(own, lambda: self.to.write(self.s.terms))
        self.to.under(first, lambda: self.post(self._first_word(own), terms_of(self.s), self.words.terms, 1, ADDS))

    def _finish(self) -> None:
        """Write that the own step is made, and its value made known."""
        own = str(self.to.expressions.index(self.s.step))
        self._at(own, lambda: self.to.write((*self.s.terms, self.s.made)))
        place = 1 + len(self.words.terms)
        self.post(self._first_word(own), (self.s.made.buffer,), (self.words.value,), place, DONE)

    def post(self, word: str, buffers: Sequence[str], types: Sequence[DType], place: int, flag: int) -> None:
        """Write that values are made known, with a flag: behind their words from number `place` on, or in one word."""
        f, bits = self.to.f, [self._bits(b, t) for b, t in zip(buffers, types, strict=True)]
        if self.words.packed:
            high = [f.op(f"shl i64 {x}, {FLAG_BITS}") for x in bits]
            whole = reduce(lambda x, y: f.op(f"or i64 {x}, {y}"), high, str(flag))
            self.to.put(self.s.chain, word, whole, release=False)
            return
        for n, x in enumerate(bits):
            self.to.put(self.s.chain, f.op(f"add i64 {word}, {place + n}"), x, release=False)
        self.to.put(self.s.chain, word, str(flag), release=True)

    def look(self, word: str) -> tuple[str, str]:
        """Write that a step is looked at: its first word, and its flag."""
        f = self.to.f
        if not self.words.packed:
            flag = self.to.get(self.s.chain, word, "acquire")
            return flag, flag
        whole = self.to.get(self.s.chain, word, "relaxed")
        return whole, f.op(f"and i64 {whole}, {(1 << FLAG_BITS) - 1}")

    def take(self, word: str, whole: str, buffers: Sequence[str], types: Sequence[DType], place: int) -> None:
        """Write that values are loaded whose flag has been seen, in `whole` if it has them."""
        f = self.to.f
        for n, (b, t) in enumerate(zip(buffers, types, strict=True)):
            if self.words.packed:
                x = f.op(f"lshr i64 {whole}, {FLAG_BITS}")
            else:
                x = self.to.get(self.s.chain, f.op(f"add i64 {word}, {place + n}"), "known")
            kind = f"i{8 * t.bytes}"
            f.line(f"store {kind} {x if t.bytes == 8 else f.op(f'trunc i64 {x} to {kind}')}, ptr {self._place(b)}")

    def _find(self) -> None:
        """Write that the value before the own step is found, and stored for the threads of the block."""
        f, s = self.to.f, self.s
        at, found = f.alloca("i64", 1), f.alloca("i64", 1)
        own = str(self.to.expressions.index(s.step))
        f.line(f"store i64 {f.op(f'sub i64 {own}, 1')}, ptr {at}")
        again, back, done = (f.label(x) for x in ("again", "back", "done"))
        f.branch(again)
        f.start_block(again)
        with f.region():
            step = f.op(f"load i64, ptr {at}")
            whole, flag = self.look(self._first_word(step))
            f.line(f"store i64 {whole}, ptr {found}")
            f.branch_if(f.op(f"icmp eq i64 {flag}, {DONE}"), done, back)
            f.start_block(back)
            known = f.op(f"zext i1 {f.op(f'icmp ne i64 {flag}, 0')} to i64")
            f.line(f"store i64 {f.op(f'sub i64 {step}, {known}')}, ptr {at}")
            self.to.pause()
            f.branch(again)
        f.start_block(done)
        step, whole = f.op(f"load i64, ptr {at}"), f.op(f"load i64, ptr {found}")
        place = 1 + len(self.words.terms)
        self.take(self._first_word(step), whole, (s.made.buffer,), (self.words.value,), place)
        self.to.counted(STEP, f.op(f"add i64 {step}, 1"), own, 1, self._between)
        self.to.write((s.before,))

    def _between(self) -> None:
        """Write that a step between is made again: from what it adds, unless its value is known by now."""
        f, s = self.to.f, self.s
        step = str(self.to.expressions.index(Var(STEP)))
        word = self._first_word(step)
        if not self.words.packed:
            self.take(word, "", terms_of(s), self.words.terms, 1)
            self.to.write((s.made,))
            return
        whole, flag = self.look(word)
        known, made, after = (f.label(x) for x in ("known", "made", "after"))
        f.branch_if(f.op(f"icmp eq i64 {flag}, {DONE}"), known, made)
        f.start_block(known)
        with f.region():
            self.take(word, whole, (s.made.buffer,), (self.words.value,), 0)
        f.branch(after)
        f.start_block(made)
        with f.region():
            self.take(word, whole, terms_of(s), self.words.terms, 0)
            self.to.write((s.made,))
        f.branch(after)
        f.start_block(after)

    def _place(self, buffer: str) -> str:
        """The address of a private value."""
        return self.to.expressions.pointer(buffer, ZERO, None)

    def _bits(self, buffer: str, t: DType) -> str:
        """The bits of a private value, as a word."""
        f, kind = self.to.f, f"i{8 * t.bytes}"
        x = f.op(f"load {kind}, ptr {self._place(buffer)}")
        return x if t.bytes == 8 else f.op(f"zext {kind} {x} to i64")
