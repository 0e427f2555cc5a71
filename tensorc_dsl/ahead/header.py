"""The C header of a library."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from tensorc_dsl.ahead.interface import MEANINGS, Interface, argument_name, c_type
from tensorc_dsl.ir.expr import Dim, Expr, constant, dims_in, index, mul
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Param, format_shape

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


def write_header(api: Interface, target: Target, triple: str, threads: int) -> str:
    """Declarations for C99 and C++11: the functions, what they return, and the shape of each array."""
    at_most = "one thread" if threads == 1 else f"up to {threads} threads"
    statuses = ",\n".join(f"    TENSORC_{s.name} = {s.value} /* {text} */" for s, text in MEANINGS.items())
    return "\n".join(
        [
            f"/* {api.name}: made by tensorc-dsl for {triple}, cpu {target.cpu}; runs on {at_most}. */",
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
            *_documentation(api),
            f"int32_t {api.name}({', '.join(_formals(api))});",
            "",
            "/* The same for arrays that carry their descriptions, in the same order. Nothing but the descriptions is read",
            "   before all of them are found right. */",
            f"int32_t {api.checked}(const tensorc_array *arrays, int32_t count);",
            "",
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


def _formals(api: Interface) -> Iterator[str]:
    for d in api.dims:
        yield f"int64_t {argument_name(d.name)}"
    for p in api.params:
        yield f"{'' if p.output else 'const '}{c_type(p.dtype).name} *{argument_name(p.name)}"


def _documentation(api: Interface) -> Iterator[str]:
    """What the function takes, argument by argument."""
    yield f"/* Computes {', '.join(p.name for p in api.params if p.output)} and returns 0, or a status and writes nothing."
    yield "   Arrays are dense, the last dimension fastest, aligned to their elements; outputs overlap no other array."
    for d in api.dims:
        yield f"   {argument_name(d.name)}: a size, {f'at least {d.low}' if d.high is None else f'{d.low} to {d.high}'}"
    for p in api.params:
        kept = " as its bits" if p.dtype.name in ("f16", "bf16") else ", 0 or 1" if p.dtype.kind == "bool" else ""
        what = "output" if p.output else "input"
        yield f"   {argument_name(p.name)}: {what}, {p.dtype}{format_shape(p.shape) if p.shape else ''}{kept}"
    yield "*/"


def _constants(api: Interface) -> Iterator[str]:
    for d in api.dims:
        yield f"#define {api.name}_{d.name}_MIN INT64_C({d.low})"
        if d.high is not None:
            yield f"#define {api.name}_{d.name}_MAX INT64_C({d.high})"
    for p in api.params:
        yield f"#define {api.name}_{p.name}_RANK {len(p.shape)}"
        yield from _shape_of(f"{api.name}_{p.name}", p)


def _shape_of(prefix: str, p: Param) -> Iterator[str]:
    """The shape and the number of elements; over sizes, where a shape is made of those and of numbers alone."""
    if not all(isinstance(e, Dim) or constant(e) is not None for e in p.shape):
        return
    names = sorted({d.name for e in p.shape for d in dims_in(e)})
    given = f"({', '.join(names)})" if names else ""
    if p.shape:
        yield f"#define {prefix}_SHAPE{given} {{{', '.join(map(_extent, p.shape))}}}"
    count = constant(reduce(mul, p.shape, index(1)))
    product = f"({' * '.join(map(_extent, p.shape))})" if count is None else f"INT64_C({count})"
    yield f"#define {prefix}_COUNT{given} {product}"


def _extent(e: Expr) -> str:
    n = constant(e)
    return f"(int64_t)({format_expr(e)})" if n is None else f"INT64_C({n})"
