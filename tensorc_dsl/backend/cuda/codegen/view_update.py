"""Atomic updates as CUDA C++, for `view`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorc_dsl.backend.cuda.codegen.view_expr import TYPES, c_name, text_of, value
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.ir.atomics import Change, change_of, is_switch
from tensorc_dsl.ir.expr import ZERO, Expr, Load, Not, dtype_of, transform
from tensorc_dsl.ir.program import Store
from tensorc_dsl.ir.reductions import fold_of

_UPDATES: Mapping[Change, str] = {
    "add": "Add", "fadd": "Add", "min": "Min", "umin": "Min", "max": "Max", "umax": "Max",
}  # fmt: skip
"""What CUDA C++ calls the updates of one number."""

_WORDS = {2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}
"""The numbers that CUDA C++ compares and exchanges, by their bytes."""

_OLD = ".old"
"""The buffer of the value that an update changes, under a name that none of a program can have."""


def update(s: Store, pad: str) -> Iterator[str]:
    """An atomic store. Raises CompileError if it compares and exchanges single bytes."""
    fold, change, t = fold_of(s), change_of(s), dtype_of(s.value)
    place = f"&{c_name(s.buffer)}[{value(s.indices[0])}]"
    if fold is not None and is_switch(s):
        changes = fold.value if fold.op == "or" else Not(fold.value)
        yield f"{pad}if ({value(changes)}) *(volatile bool *){place} = {'true' if fold.op == 'or' else 'false'};"
    elif fold is None or change is None:
        yield from _exchange(s, place, pad)
    elif change == "add" and t.bytes == 8:  # which there is for unsigned numbers, and is the same
        yield f"{pad}atomicAdd((unsigned long long *){place}, (unsigned long long){text_of(fold.value)});"
    else:
        yield f"{pad}atomic{_UPDATES[change]}({place}, {value(fold.value)});"


def _exchange(s: Store, place: str, pad: str) -> Iterator[str]:
    """An update as a loop: the value is computed from what is there, and stored if that is there still."""
    t = dtype_of(s.value)
    word, kind, old = _WORDS.get(t.bytes), TYPES[t.name], c_name(_OLD)
    if word is None:
        raise CompileError(f"the view in CUDA C++ has no words for the atomic update of `{s.buffer}`; see its PTX")
    new = value(transform(s.value, lambda x: _from_old(x, s)))
    yield f"{pad}for ({word} *at_ = ({word} *){place}, was_ = *(volatile {word} *)at_;;) {{"
    yield f"{pad}    const {kind} {old}[1] = {{bitcast<{kind}>(was_)}};"
    yield f"{pad}    const {word} found_ = atomicCAS(at_, was_, bitcast<{word}>(({kind}){new}));"
    yield f"{pad}    if (found_ == was_) break;"
    yield f"{pad}    was_ = found_;"
    yield f"{pad}}}"


def _from_old(x: Expr, s: Store) -> Expr:
    """A load of the element that is updated, as one of the value that was there."""
    return Load(_OLD, (ZERO,), x.dtype) if isinstance(x, Load) and x.buffer == s.buffer else x
