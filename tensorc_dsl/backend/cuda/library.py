"""A task's kernels as files: PTX, the declarations for C, and C code that loads and launches them by the CUDA driver."""

from __future__ import annotations

from collections.abc import Iterator

from tensorc_dsl.backend.cuda.codegen.view import cuda_text
from tensorc_dsl.backend.cuda.compiled import CudaKernel, sass_of
from tensorc_dsl.backend.cuda.lower.kernels import ALIGNMENT, MOST_BLOCKS, DeviceKernel
from tensorc_dsl.backend.cuda.maps import CACHED, MAP_ALIGNMENT, MAP_BYTES, Encoding, encoding_of
from tensorc_dsl.backend.llvm.ahead.interface import argument_name
from tensorc_dsl.backend.llvm.ahead.library import STRIDES, described
from tensorc_dsl.backend.memory import MOST_BYTES
from tensorc_dsl.backend.protocol import Form
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Compare,
    Dim,
    Expr,
    Logic,
    Var,
    add,
    ceildiv,
    constant,
    index,
    mul,
    rewrite_expr,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.lower.flat import Prepared

FORMS = {
    "ptx": Form(".ptx", True, "the PTX, which any driver for CUDA 12 loads", usual=True),
    "header": Form(".h", True, "the declarations for C and C++", usual=True),
    "loader": Form(".c", True, "C code that loads and launches the kernels; to be linked with -lcuda", usual=True),
    "llvm": Form(".ll", True, "the LLVM code, before LLVM's passes"),
    "cuda": Form(".cu", True, "a view of the kernels in CUDA C++"),
    "sass": Form(".sass", True, "the machine code as text; needs ptxas and nvdisasm"),
}


@frozen
class CudaLibrary:
    """The ahead-of-time output of a task. `origin` says where its schedule is from."""

    kernel: CudaKernel
    name: str
    origin: str

    def make(self, form: str) -> bytes:
        """A file in one of the forms of `FORMS`. Raises TschedError (E0919) if a tool for it is missing."""
        match form:
            case "ptx":
                return self.kernel.ptx.encode()
            case "header":
                return self._header().encode()
            case "loader":
                return self._loader().encode()
            case "llvm":
                return self.kernel.llvm_ir.encode()
            case "cuda":
                return cuda_text(self.kernel.program).encode()
            case "sass":
                return sass_of(self.kernel.ptx, self.kernel.cpu).encode()
            case _:
                raise ValueError(f"a library has no form {form!r}")

    def _arguments(self) -> list[str]:
        p = self.kernel.program
        arrays = [f"uint64_t {argument_name(x.name)}" for x in p.params]
        scratch = ["uint64_t scratch_"] if p.scratch else []
        return [*arrays, *scratch, *(f"int64_t {argument_name(d.name)}" for d in p.dims)]

    def _launch(self) -> str:
        return f"int32_t {self.name}(const {self.name}_module *m, void *stream, {', '.join(self._arguments())})"

    def _header(self) -> str:
        return "\n".join((*self._head(), ""))

    def _head(self) -> Iterator[str]:
        name, p = self.name, self.kernel.program
        cpu = self.kernel.cpu
        yield f"/* {name}: made by tensorc-dsl for GPUs, {cpu}{' and later' if cpu[-1].isdigit() else ' alone'}."
        yield f"   The schedule is {self.origin}."
        yield "*/"
        yield from (f"#ifndef TENSORC_{name}_H", f"#define TENSORC_{name}_H", "", "#include <stdint.h>", "")
        yield from ("#ifdef __cplusplus", 'extern "C" {', "#endif", "")
        yield "/* The kernels in a context of the CUDA driver. */"
        yield f"typedef struct {name}_module {{ void *module; void *kernels[{len(p.kernels)}]; }} {name}_module;"
        yield ""
        yield "/* Loads the kernels into the current context. Returns 0, or an error of the driver (CUresult). */"
        yield f"int32_t {name}_load({name}_module *m);"
        yield f"int32_t {name}_unload({name}_module *m);"
        yield ""
        if p.scratch:
            sizes = ", ".join(f"int64_t {argument_name(d.name)}" for d in p.dims)
            yield "/* How many bytes of memory on the device the intermediate results take; -1: more than any has. */"
            yield f"int64_t {name}_scratch_bytes({sizes or 'void'});"
            yield ""
        yield "/* Launches the kernels on a stream (CUstream) and does not wait for them. Arrays are addresses on the device"
        yield f"   (CUdeviceptr), dense, the last dimension fastest, aligned to {ALIGNMENT} bytes. Outputs overlap no other."
        yield "   Returns 0, an error of the driver, or -1: an array is null or not aligned; -2: a size is out of its range."
        if p.scratch:
            yield "   -3: no memory is large enough for the intermediate results of these sizes."
        if any(x.apart is not None for x in p.params):
            yield "   -4: elements of an output would share a place."
        if any(x.strides for x in p.params):
            yield STRIDES
        for d in p.dims:
            yield f"   {argument_name(d.name)}: a size, {f'at least {d.low}' if d.high is None else f'{d.low} to {d.high}'}"
        for x in p.params:
            yield f"   {argument_name(x.name)}: {x.role}, {described(x)}"
        if p.scratch:
            yield f"   scratch_: {name}_scratch_bytes() bytes that nothing else uses until the kernels have ended"
        yield "*/"
        yield f"{self._launch()};"
        yield from ("", "#ifdef __cplusplus", "}", "#endif", "", "#endif")

    def _loader(self) -> str:
        return "\n".join((*self._code(), ""))

    def _code(self) -> Iterator[str]:
        name, p = self.name, self.kernel.program
        yield f'#include "{name}.h"'
        yield ""
        yield (
            _DRIVER
            + (_MAPS if any(k.maps for k in p.kernels) else "")
            + _CLEAR * any(k.cleared for k in p.kernels)
            + (_COUNTS if p.scratch else "")
        )
        yield "static const char ptx[] ="
        yield from (f'    "{_escaped(line)}\\n"' for line in self.kernel.ptx.splitlines())
        yield "    ;"
        yield ""
        yield f"int32_t {name}_load({name}_module *m) {{"
        yield "    int32_t e = cuModuleLoadDataEx(&m->module, ptx, 0, 0, 0);"
        for n, k in enumerate(p.kernels):
            yield f'    if (!e) e = cuModuleGetFunction(&m->kernels[{n}], m->module, "{k.name}");'
            if k.shared_bytes:
                yield f"    if (!e) e = cuFuncSetAttribute(m->kernels[{n}], MAX_SHARED_BYTES, {k.shared_bytes});"
        yield from ("    return e;", "}", "", f"int32_t {name}_unload({name}_module *m) {{")
        yield from ("    return cuModuleUnload(m->module);", "}", "")
        if p.scratch:
            sizes = ", ".join(f"int64_t {argument_name(d.name)}" for d in p.dims)
            yield f"int64_t {name}_scratch_bytes({sizes or 'void'}) {{"
            yield f"    int64_t n = {_counted(_places(p.scratch)[1], self._names())};"
            yield "    return n > MOST_BYTES ? -1 : n;"
            yield from ("}", "")
        yield f"{self._launch()} {{"
        for d in p.dims:
            v = argument_name(d.name)
            above = f" || {v} > {d.high}" if d.high is not None else ""
            yield f"    if ({v} < {d.low}{above}) return -2;"
        for x in p.params:
            if x.apart is not None:
                yield f"    if (!{_c(x.apart, self._names())}) return -4;"
        for size, most in dict.fromkeys(x for k in p.kernels for x in zip(k.grid, MOST_BLOCKS, strict=True)):
            if constant(size) is None:
                yield f"    if ({_c(size, self._names())} > {most}) return -2;"
        if p.scratch:
            yield f"    if ({name}_scratch_bytes({', '.join(argument_name(d.name) for d in p.dims)}) < 0) return -3;"
        arrays = [*(argument_name(x.name) for x in p.params), *(["scratch_"] if p.scratch else [])]
        yield f"    if ({' || '.join(f'!{v} || {v} % {ALIGNMENT}' for v in arrays)}) return -1;"
        for x, place in zip(p.scratch, _places(p.scratch)[0], strict=True):
            yield f"    uint64_t s_{x.name} = scratch_ + (uint64_t)({_c(place, self._names())});"
        yield "    int32_t e = 0;"
        for n, k in enumerate(p.kernels):
            yield from self._start(n, k)
        yield from ("    return e;", "}")

    def _start(self, n: int, k: DeviceKernel) -> Iterator[str]:
        p = self.kernel.program
        scratch = {x.name for x in p.scratch}
        maps = [encoding_of(m) for m in k.maps]
        given = [f"map{m}" for m in range(len(maps))]
        given += [f"&s_{a}" if a in scratch else f"&{argument_name(a)}" for a in k.params]
        given += [f"&{argument_name(d.name)}" for d in p.dims]
        x, y, z = (_c(e, self._names()) for e in k.grid)
        yield "    if (!e) {"
        for m, one in enumerate(maps):
            yield from self._map(m, one, f"s_{one.array}" if one.array in scratch else argument_name(one.array))
        yield f"        void *arguments[] = {{{', '.join(f'(void *){a}' for a in given) or '0'}}};"
        yield f"        int64_t x = {x}, y = {y}, z = {z};"
        for a in k.cleared:
            (size,) = (mul(s.size, index(s.dtype.bytes)) for s in p.scratch if s.name == a)
            yield f"        if (!e) e = cuMemsetD8Async(s_{a}, 0, (size_t)({_c(size, self._names())}), stream);"
        yield f"        if ({'!e && ' * bool(maps or k.cleared)}x > 0 && y > 0 && z > 0)"
        sizes = f"(unsigned)x, (unsigned)y, (unsigned)z, {k.threads}, 1, 1, {k.shared_bytes}"
        yield f"            e = cuLaunchKernel(m->kernels[{n}], {sizes}, stream, arguments, 0);"
        yield "    }"

    def _map(self, n: int, x: Encoding, address: str) -> Iterator[str]:
        """The tensor map of that number, at a multiple of the alignment that the driver requires."""
        sizes, strides = (", ".join(_c(e, self._names()) for e in every) for every in (x.sizes, x.strides))
        yield f"        unsigned char room{n}[{MAP_BYTES + MAP_ALIGNMENT}];"
        yield f"        unsigned char *map{n} = room{n} + (-(uintptr_t)room{n} & {MAP_ALIGNMENT - 1});"
        yield f"        uint64_t sizes{n}[] = {{{sizes}}}, strides{n}[] = {{{strides}}};"
        box, ones = ", ".join(map(str, x.box)), ", ".join("1" for _ in x.box)
        yield f"        uint32_t box{n}[] = {{{box}}}, ones{n}[] = {{{ones}}};"
        given = f"{x.kind}, {len(x.box)}, (void *)(uintptr_t){address}, sizes{n}, strides{n}, box{n}, ones{n}"
        yield f"        if (!e) e = cuTensorMapEncodeTiled(map{n}, {given}, 0, {x.swizzle}, {CACHED}, 0);"

    def _names(self) -> dict[str, str]:
        return {d.name: argument_name(d.name) for d in self.kernel.program.dims}


_DRIVER = """\
/* The part of the CUDA driver's interface that is used: no toolkit is needed to compile this. */
extern int cuModuleLoadDataEx(void **, const void *, unsigned, void *, void *);
extern int cuModuleGetFunction(void **, void *, const char *);
extern int cuModuleUnload(void *);
extern int cuFuncSetAttribute(void *, int, int);
extern int cuLaunchKernel(
    void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

enum { MAX_SHARED_BYTES = 8 }; /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
"""


_CLEAR = """\
#include <stddef.h>
extern int cuMemsetD8Async(uint64_t, unsigned char, size_t, void *);
"""

_COUNTS = f"""\
/* Numbers of bytes; from one beyond MOST_BYTES on, all that follow are. */
#define MOST_BYTES INT64_C({MOST_BYTES})
static inline int64_t plus(int64_t a, int64_t b) {{
    return a > MOST_BYTES || b > MOST_BYTES ? MOST_BYTES + 1 : a + b;
}}
static inline int64_t minus(int64_t a, int64_t b) {{
    return a > MOST_BYTES || b > MOST_BYTES ? MOST_BYTES + 1 : a - b;
}}
static inline int64_t times(int64_t a, int64_t b) {{
    int64_t x = a < 0 ? -a : a, y = b < 0 ? -b : b;
    return x > MOST_BYTES || y > MOST_BYTES || (x && y > MOST_BYTES / x) ? MOST_BYTES + 1 : a * b;
}}
static inline int64_t over(int64_t a, int64_t b) {{ return a > MOST_BYTES ? a : a / b; }}
"""

_MAPS = """\
extern int cuTensorMapEncodeTiled(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *,
    const uint32_t *, int, int, int, int);
"""


def _places(scratch: tuple[Prepared, ...]) -> tuple[list[Expr], Expr]:
    """The offset of each intermediate array in bytes, and the size of all."""
    places: list[Expr] = []
    size: Expr = ZERO
    for x in scratch:
        places.append(size)
        lines = ceildiv(mul(x.size, index(x.dtype.bytes)), index(ALIGNMENT))
        size = add(size, mul(lines, index(ALIGNMENT)))
    return places, size


def _c(e: Expr, names: dict[str, str]) -> str:
    """A size, or a condition on sizes, as C: sizes are never negative, so C divides as the language does."""
    if isinstance(e, Logic):
        return f"({_c(e.lhs, names)} {'&&' if e.op == 'and' else '||'} {_c(e.rhs, names)})"
    if isinstance(e, Compare):
        return f"({_c(e.lhs, names)} {e.op} {_c(e.rhs, names)})"
    return format_expr(rewrite_expr(e, lambda x: Var(names[x.name]) if isinstance(x, Dim) else x))


def _counted(e: Expr, names: dict[str, str]) -> str:
    """A number of bytes as C, in arithmetic that says where it is more than `MOST_BYTES`."""
    if not isinstance(e, Binary):
        return _c(e, names)
    x, y = _counted(e.lhs, names), _counted(e.rhs, names)
    match e.op:
        case "+" | "-" | "*" | "/":
            return f"{ {'+': 'plus', '-': 'minus', '*': 'times', '/': 'over'}[e.op] }({x}, {y})"
        case "min" | "max":
            return f"{e.op}({x}, {y})"
        case "%":
            return f"({x}) % ({y})"
        case "xor":
            return f"({x}) ^ ({y})"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
