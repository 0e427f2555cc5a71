"""The C interface of a kernel: names, types, status codes, and the layout of prepared memory."""

from __future__ import annotations

import json
from enum import IntEnum
from functools import reduce
from hashlib import sha256
from typing import Literal

from tensorc_dsl.backend.llvm.ahead.cpu import required_features
from tensorc_dsl.backend.llvm.codegen.compile import Compiled
from tensorc_dsl.backend.llvm.codegen.statements import whole_lines
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import dlpack_code
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import Dim, Expr, add, constant, dims_in, index
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.sizes import spanned_expr
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Param, Prepared
from tensorc_dsl.proof.sets.constants import told_by

# The layout of prepared memory: values that depend on constant inputs alone, in memory that the caller owns.


WORD = 8
"""The number of bytes of the mark, and of each size after it."""

LINE = 64
"""The alignment of prepared memory and of every part of it, in bytes."""


@frozen
class PreparedMemory:
    """A head with `mark` and the sizes of `dims`, then the results of the kernel's preparation, then copies of `kept`.

    It contains no addresses, so it may be copied, and kept in a file. The mark identifies the code, which determines
    the layout.
    """

    constants: tuple[Param, ...]
    dims: tuple[Dim, ...]
    """The open sizes that the shapes of the constant inputs determine."""
    kept: tuple[Param, ...]
    """The constant inputs that calls still read."""
    own: Expr
    """The number of bytes that the kernel's preparation writes."""
    mark: int

    @property
    def head(self) -> int:
        """The size of the head in bytes, a multiple of the alignment."""
        return -(-WORD * (1 + len(self.dims)) // LINE) * LINE

    @property
    def copies(self) -> tuple[tuple[Param, Expr], ...]:
        """The copies of `kept`, with their offsets."""
        places: list[tuple[Param, Expr]] = []
        at = add(index(self.head), self.own)
        for p in self.kept:
            places.append((p, at))
            at = add(at, _lines(p))
        return tuple(places)

    @property
    def bytes(self) -> Expr:
        """The total size in bytes, over `dims`."""
        return reduce(add, map(_lines, self.kept), add(index(self.head), self.own))


def prepared_memory(kernel: Compiled) -> PreparedMemory | None:
    """The layout for a kernel; None without constant inputs, or if their shapes do not determine their open sizes."""
    constants = tuple(p for p in kernel.params if p.constant)
    mentioned = {d for p in constants for e in p.described for d in dims_in(e)}
    dims = tuple(d for d in kernel.dims if d in mentioned)
    if not constants or not told_by([p.described for p in constants]) >= mentioned:
        return None
    kept = tuple(p for p in constants if p.name in kernel.kept)
    mark = int.from_bytes(sha256(kernel.llvm_ir.encode()).digest()[:WORD], "little", signed=True)
    return PreparedMemory(constants, dims, kept, kernel.prepared_bytes, mark)


def _lines(p: Param) -> Expr:
    return whole_lines(Prepared(p.name, p.dtype, spanned_expr(p.shape, p.strides)))


# The C interface of a kernel: names, types, and status codes. Header, entries and metadata are made from it.


class Status(IntEnum):
    """The low byte of an entry's result; the higher bits are the position of the wrong argument, from 0."""

    OK = 0
    NULL = 1
    MISALIGNED = 2
    SIZE = 3
    OVERLAP = 4
    MEMORY = 5
    COUNT = 6
    DEVICE = 7
    DTYPE = 8
    RANK = 9
    SHAPE = 10
    STRIDES = 11
    UNPREPARED = 12
    CPU = 13
    FILE = 14
    WEIGHTS = 15


MEANINGS = {
    Status.OK: "the outputs are computed",
    Status.NULL: "an argument is a null pointer",
    Status.MISALIGNED: f"the data is not aligned to its elements, prepared memory not to {LINE} bytes",
    Status.SIZE: "a size is out of its range (the argument is the position of the size)",
    Status.OVERLAP: "an output shares memory with another array",
    Status.MEMORY: "there is no memory for intermediate results, or these sizes need more than any has",
    Status.COUNT: "not the number of arrays that the function takes",
    Status.DEVICE: "the data is not in the memory of the CPU",
    Status.DTYPE: "not the type of the elements",
    Status.RANK: "not the number of dimensions",
    Status.SHAPE: "not the shape, or shapes that do not fit each other",
    Status.STRIDES: "not the strides, or elements of an output that share a place",
    Status.UNPREPARED: "the memory holds nothing that this library prepared for these sizes",
    Status.CPU: "the processor lacks a feature that the code is made for",
    Status.FILE: "the file of weights cannot be opened",
    Status.WEIGHTS: "the file of weights is not the one that was made with this library",
}


@frozen
class CType:
    """The C type of an element, and DLPack's code for its kind. Floats of 8 and 16 bits are passed as their bits."""

    name: str
    code: int
    bits: int


_NAMES = {"f32": "float", "f64": "double", "bool": "uint8_t"}


def c_type(t: DType) -> CType:
    """The type in C (`float`, `int8_t`), with DLPack's code and bits; a bool has 8 bits."""
    name = _NAMES.get(t.name) or f"{'' if t.kind == 'int' else 'u'}int{t.bits}_t"
    return CType(name, dlpack_code(t), 8 * t.bytes)


_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class compl
    concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default delete do
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace
    new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires restrict
    return short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try
    typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while xor xor_eq
    """.split()
)
"""Keywords of C and C++."""

_LIBRARY = frozenset(
    """
    main abs labs div exp exp2 exp10 expm1 log log2 log10 log1p logb pow sqrt cbrt hypot sin cos tan asin acos atan atan2
    sinh cosh tanh asinh acosh atanh erf erfc tgamma lgamma gamma ceil floor trunc round rint nearbyint fabs fma fmax fmin
    fmod fdim remainder remquo frexp ldexp modf scalbn copysign nan nextafter j0 j1 jn y0 y1 yn signbit isnan isinf select
    malloc calloc realloc free exit abort atexit qsort bsearch rand srand time clock signal raise system getenv memcpy
    memmove memset memcmp memchr strlen strcpy strcmp strcat index read write open close send recv pipe dup fork link pause
    sleep sync access remove rename printf scanf puts putc getc fopen fclose accept bind connect listen shutdown socket
    kill wait times alarm nice posix_memalign getauxval clock_gettime mmap mprotect sysconf fread fwrite fgetc fputs strncmp
    strtod strtoll strtoull
    """.split()
)
"""Functions of the C library and POSIX that a task could be named after: a function of ours would replace them."""


@problem(
    "E0912",
    "C cannot have a function called `{name}`",
    help="call the task otherwise: C and C++ use the word, or their libraries have a function of that name",
)
def NO_NAME(*, name: str) -> None: ...


def require_free(name: str) -> None:
    """Raises TschedError (E0912) if a function of that name would conflict with C, C++, their libraries or our names."""
    if name in _KEYWORDS | _LIBRARY or name.lower().startswith("tensorc_"):
        raise TschedError(NO_NAME(None, name=name))


@frozen
class Signature:
    """A function that C calls: `name` takes the sizes, the arrays and, if it uses it, the prepared memory.

    `checked` takes the arrays with their descriptions instead. The position of an argument counts arrays, followed by
    the prepared memory.
    """

    name: str
    dims: tuple[Dim, ...]
    params: tuple[Param, ...]
    memory: Literal["no", "writes", "reads"]

    @property
    def checked(self) -> str:
        return f"{self.name}_checked"


@frozen
class Interface:
    """The names of a library. With prepared memory, values that depend on constant inputs alone can be computed once."""

    name: str
    params: tuple[Param, ...]
    dims: tuple[Dim, ...]
    memory: PreparedMemory | None

    @property
    def whole(self) -> Signature:
        """The function that computes everything in one call."""
        return Signature(self.name, self.dims, self.params, "no")

    @property
    def prepare(self) -> Signature | None:
        """The function that takes the constant inputs."""
        m = self.memory
        return Signature(f"{self.name}_prepare", m.dims, m.constants, "writes") if m else None

    @property
    def run(self) -> Signature | None:
        """The function that takes the other arrays."""
        others = tuple(p for p in self.params if not p.constant)
        return Signature(f"{self.name}_run_prepared", self.dims, others, "reads") if self.memory else None

    @property
    def signatures(self) -> tuple[Signature, ...]:
        """All functions that take arrays."""
        return tuple(s for s in (self.whole, self.prepare, self.run) if s is not None)

    @property
    def prepared_bytes(self) -> str:
        return f"{self.name}_prepared_bytes"

    @property
    def metadata(self) -> str:
        return f"{self.name}_metadata"

    @property
    def exports(self) -> tuple[str, ...]:
        """All symbols that an object file exports."""
        functions = [name for s in self.signatures for name in (s.name, s.checked)]
        return (*functions, *([self.prepared_bytes] if self.memory else []), self.metadata)


@frozen
class ModelInterface:
    """The names of the library of a model. An instance of it is what prepared memory is to a kernel."""

    name: str
    params: tuple[Param, ...]
    dims: tuple[Dim, ...] = ()
    memory: None = None

    @property
    def run(self) -> Signature:
        """The function that takes the inputs, the outputs and an instance."""
        return Signature(f"{self.name}_run", (), self.params, "reads")

    @property
    def create(self) -> str:
        return f"{self.name}_create"

    @property
    def destroy(self) -> str:
        return f"{self.name}_destroy"

    @property
    def instance(self) -> str:
        """The type of an instance."""
        return f"{self.name}_instance"

    @property
    def metadata(self) -> str:
        return f"{self.name}_metadata"

    @property
    def exports(self) -> tuple[str, ...]:
        """All symbols that an object file exports."""
        return self.create, self.run.name, self.run.checked, self.destroy, self.metadata


def argument_name(name: str) -> str:
    """The name of an argument in a declaration."""
    return f"{name}_" if name in _KEYWORDS else name


def _written(sizes: tuple[Expr, ...]) -> list[int | str]:
    return [format_expr(e) if (n := constant(e)) is None else n for e in sizes]


def describe(
    api: Interface | ModelInterface, target: Target, triple: str, threads: int, origin: str, version: str
) -> str:
    """The metadata as JSON on one line, for programs that have the library without its header."""
    arrays = [
        {
            "name": p.name,
            "dtype": p.dtype.name,
            "shape": _written(p.shape),
            **({"strides": _written(p.strides)} if p.strides else {}),
            "output": p.output,
            **({"updated": True} if p.updated else {}),
            "constant": p.constant,
        }
        for p in api.params
    ]
    facts = {
        "name": api.name,
        "functions": [name for name in api.exports if name != api.metadata],
        "sizes": [{"name": d.name, "low": d.low, "high": d.high} for d in api.dims],
        "arrays": arrays,
        "triple": triple,
        "cpu": target.cpu,
        "features": target.feature_names,
        "required": required_features(target),
        "threads": threads,
        "schedule": origin,
        "tensorc_dsl": version,
    }
    return json.dumps(facts)
