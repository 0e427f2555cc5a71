"""Writes the C header of a library."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from functools import reduce

from tensorc_dsl.backend.llvm.ahead.cpu import required_features
from tensorc_dsl.backend.llvm.ahead.interface import LINE, MEANINGS, Interface, Signature, argument_name, c_type
from tensorc_dsl.ir.expr import Dim, Expr, constant, dims_in, index, mul
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Param, format_shape

STRIDES = "   Of arrays with strides these are the distances of neighbours along each dimension, in elements."

_SHARED = """\
#ifndef TENSORC_STATUS_DECLARED
#define TENSORC_STATUS_DECLARED

/* What the low byte of a result means. */
enum tensorc_status {{
{statuses}
}};

/* Of a result: what is wrong, and with which argument, counted from 0. */
#define TENSORC_STATUS(result) ((result) & 255)
#define TENSORC_ARGUMENT(result) ((result) >> 8)

/* An array with its description: DLPack's DLTensor, field by field.
   The data begins byte_offset bytes behind data. strides count elements; NULL means that they are those of a dense array. */
typedef struct tensorc_array {{
    void *data;
    int32_t device_type; /* 1, the CPU */
    int32_t device_id;
    int32_t ndim;
    uint8_t code;   /* 0: int, 1: uint, 2: float, 4: bfloat, 6: bool */
    uint8_t bits;
    uint16_t lanes; /* 1 */
    const int64_t *shape;
    const int64_t *strides;
    uint64_t byte_offset;
}} tensorc_array;

/* The machine that this was made for; a size below 0 is an error of the C compiler. */
typedef char tensorc_requires_64_bit_pointers[sizeof(void *) == 8 ? 1 : -1];
typedef char tensorc_requires_single_float[sizeof(float) == 4 ? 1 : -1];
typedef char tensorc_requires_the_layout_of_dlpack[sizeof(tensorc_array) == 48 ? 1 : -1];

#endif
"""


def write_header(api: Interface, target: Target, triple: str, threads: int, origin: str) -> str:
    """Declarations for C99 and C++11: the functions, their status codes, and the shape of each array."""
    at_most = "one thread" if threads == 1 else f"up to {threads} threads"
    features = ", ".join(required_features(target))
    needed = f"Without one of these features it does nothing: {features}." if features else "It asks for no features."
    statuses = ",\n".join(f"    TENSORC_{s.name} = {s.value} /* {text} */" for s, text in MEANINGS.items())
    return "\n".join(
        [
            f"/* {api.name}: made by tensorc-dsl for {triple}, cpu {target.cpu}; runs on {at_most}.",
            *textwrap.wrap(needed, 120, initial_indent="   ", subsequent_indent="   "),
            f"   The schedule is {origin}.",
            "*/",
            f"#ifndef TENSORC_{api.name}_H",
            f"#define TENSORC_{api.name}_H",
            "",
            "#include <stdint.h>",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            _SHARED.format(statuses=statuses),
            *_constants(api),
            "",
            *_functions(api),
            "/* The name, arrays, sizes and target of the library as JSON, for programs without this header. */",
            f"extern const char {api.metadata}[];",
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            "#endif",
            "",
        ]
    )


def _functions(api: Interface) -> Iterator[str]:
    outputs = ", ".join(p.name for p in api.params if p.output)
    yield from _function(api.whole, f"Computes {outputs}")
    if api.memory is None or api.prepare is None or api.run is None:
        return
    constants = ", ".join(p.name for p in api.memory.constants)
    sizes = ", ".join(f"int64_t {argument_name(d.name)}" for d in api.memory.dims)
    otherwise = "; -1 where a size is out of its range, or no memory has as many" if sizes else ""
    yield f"/* How many bytes of prepared memory there have to be{otherwise}. */"
    if (size := constant(api.memory.bytes)) is not None:
        yield f"#define {api.name}_PREPARED_BYTES INT64_C({size})"
    yield f"int64_t {api.prepared_bytes}({sizes or 'void'});"
    yield ""
    yield from _function(api.prepare, f"Computes what follows from {constants} alone; they are not needed afterwards")
    yield from _function(api.run, f"Computes {outputs} from what {api.prepare.name} has prepared")


def _function(s: Signature, what: str) -> Iterator[str]:
    """The declarations of both forms of a function, with a comment on each argument."""
    prepared = _free_name("prepared", s)
    memory = {"no": [], "writes": [f"void *{prepared}"], "reads": [f"const void *{prepared}"]}[s.memory]
    yield f"/* {what}. Returns 0, or a status and writes nothing."
    yield "   Arrays are dense, the last dimension fastest, aligned to their elements; outputs overlap no other array."
    if any(p.strides for p in s.params):
        yield STRIDES
    formals: list[str] = []
    for d in s.dims:
        yield f"   {argument_name(d.name)}: a size, {f'at least {d.low}' if d.high is None else f'{d.low} to {d.high}'}"
        formals.append(f"int64_t {argument_name(d.name)}")
    for p in s.params:
        kept = (
            " as its bits" if p.dtype.is_float and p.dtype.bits < 32 else ", 0 or 1" if p.dtype.kind == "bool" else ""
        )
        yield f"   {argument_name(p.name)}: {p.role}, {described(p)}{kept}"
        formals.append(f"{'' if p.output else 'const '}{c_type(p.dtype).name} *{argument_name(p.name)}")
    if memory:
        owner = "the caller's; it may be copied, other builds refuse it"
        yield f"   {prepared}: {'output' if s.memory == 'writes' else 'input'}, aligned to {LINE} bytes, {owner}"
    yield "*/"
    yield f"int32_t {s.name}({', '.join([*formals, *memory])});"
    yield ""
    yield "/* The same for arrays that carry their descriptions, in the same order. Nothing but the descriptions is read"
    yield "   before all of them are found right. */"
    yield f"int32_t {s.checked}({', '.join(['const tensorc_array *arrays', 'int32_t count', *memory])});"
    yield ""


def described(p: Param) -> str:
    """The type of an argument in a comment, with its shape and its declared strides."""
    strides = f" strides {format_shape(p.strides)}" if p.strides else ""
    return f"{p.dtype}{format_shape(p.shape) if p.shape else ''}{strides}"


def _free_name(name: str, s: Signature) -> str:
    """The name, made longer until no size and no array has it."""
    while name in {argument_name(x.name) for x in (*s.dims, *s.params)}:
        name += "_"
    return name


def _constants(api: Interface) -> Iterator[str]:
    for d in api.dims:
        yield f"#define {api.name}_{d.name}_MIN INT64_C({d.low})"
        if d.high is not None:
            yield f"#define {api.name}_{d.name}_MAX INT64_C({d.high})"
    for p in api.params:
        yield f"#define {api.name}_{p.name}_RANK {len(p.shape)}"
        yield from _shape_of(f"{api.name}_{p.name}", p)


def _shape_of(prefix: str, p: Param) -> Iterator[str]:
    """The shape and the number of elements of an array; over sizes if the shape contains only those and numbers."""
    if not all(isinstance(e, Dim) or constant(e) is not None for e in p.shape):
        return
    names = sorted({d.name for e in p.shape for d in dims_in(e)})
    given = f"({', '.join(names)})" if names else ""
    if p.shape:
        yield f"#define {prefix}_SHAPE{given} {{{', '.join(map(_extent, p.shape))}}}"
    if p.strides and all(isinstance(e, Dim) or constant(e) is not None for e in p.strides):
        told = sorted({d.name for e in p.strides for d in dims_in(e)})
        over = f"({', '.join(told)})" if told else ""
        yield f"#define {prefix}_STRIDES{over} {{{', '.join(map(_extent, p.strides))}}}"
    count = constant(reduce(mul, p.shape, index(1)))
    product = f"({' * '.join(map(_extent, p.shape))})" if count is None else f"INT64_C({count})"
    yield f"#define {prefix}_COUNT{given} {product}"


def _extent(e: Expr) -> str:
    n = constant(e)
    return f"(int64_t)({format_expr(e)})" if n is None else f"INT64_C({n})"
