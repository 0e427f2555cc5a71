"""Libraries of models: all kernels of a model, its calls as a table, and a file of packed weights, for C."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata

import llvmlite.binding as llvm

from tensorc_dsl.backend.llvm.ahead.cpu import Check, add_check
from tensorc_dsl.backend.llvm.ahead.entries import MEMORY, Entry, Span, bytes_of, declare_scratch, write_checked
from tensorc_dsl.backend.llvm.ahead.interface import WORD, ModelInterface, Status, describe, require_free
from tensorc_dsl.backend.llvm.ahead.library import (
    ahead_text,
    declarations,
    free_name,
    header_of,
    hide,
    link,
    link_shared,
    text_constant,
)
from tensorc_dsl.backend.llvm.codegen.compile import (
    compile_kernel,
    fixed_bytes,
    kernel_text,
    prepare_symbol,
    prepared_size,
    symbol_of,
    workspace_size,
)
from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.llvm.codegen.statements import PARALLEL_FOR
from tensorc_dsl.backend.llvm.model.cycles import workers
from tensorc_dsl.backend.llvm.runtime.call_table import HEAD, Table, TaskFacts, call_table, packed_weights
from tensorc_dsl.backend.llvm.runtime.kernel import Code, load
from tensorc_dsl.backend.llvm.runtime.native import pool_text, runtime_text
from tensorc_dsl.backend.memory import MOST_BYTES
from tensorc_dsl.backend.protocol import CompileError, Form, ModelCalls
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Kernel

MODEL_FORMS = {
    "obj": Form(".o", False, "an object file, to be linked with -pthread"),
    "so": Form(".so", False, "a shared library; needs the system's C compiler", usual=True),
    "header": Form(".h", True, "the declarations for C and C++", usual=True),
    "weights": Form(".weights", False, "the weights as the library reads them", usual=True),
}


@dataclass(frozen=True, slots=True)
class ModelLibrary:
    """The ahead-of-time output of a model. Its functions may be called from several threads at once."""

    interface: ModelInterface
    target: Target
    threads: int
    origin: str
    llvm_ir: str
    """The module without the kernels, before LLVM's passes."""
    kernels: tuple[str, ...]
    weights: Array

    def make(self, form: str) -> bytes:
        """A file in one of the forms of `MODEL_FORMS`. Raises TschedError (E0913) if there is no C compiler to link `so`."""
        match form:
            case "obj":
                return self._object()
            case "so":
                return link_shared(self._object(), self.interface.name, self.target.triple)
            case "header":
                return self._header().encode()
            case "weights":
                return self.weights.tobytes()
            case _:
                raise ValueError(f"the library of a model has no form {form!r}")

    def _object(self) -> bytes:
        """The object file. Each kernel is optimised by itself, so that its code is that of the kernel in a process."""
        machine = Machine(self.target)
        module = machine.module(self.llvm_ir)
        for text in self.kernels:
            link(module, machine.module(text))
        hide(module, self.interface.exports)
        options = llvm.create_pipeline_tuning_options()
        passes = llvm.create_new_module_pass_manager()
        passes.add_global_dead_code_eliminate_pass()
        passes.run(module, llvm.create_pass_builder(machine.machine, options))
        return machine.machine.emit_object(module)

    def _header(self) -> str:
        return header_of(
            self.interface, self.target, Machine(self.target).triple, self.threads, self.origin, self._functions()
        )

    def _functions(self) -> Iterator[str]:
        api = self.interface
        has_weights = self.weights.size > HEAD
        yield "/* A model that is ready to run: its weights, and memory for intermediate results. */"
        yield f"typedef struct {api.instance} {api.instance};"
        yield ""
        yield "/* Makes an instance. Returns 0, or a status and makes none. Instances of one file share its memory."
        path = "the path of the file that was made with this library" if has_weights else "not used, may be NULL"
        yield f"   weights: {path}"
        yield "   instance: output, to be destroyed"
        yield "*/"
        yield f"int32_t {api.create}(const char *weights, {api.instance} **instance);"
        yield ""
        outputs = ", ".join(p.name for p in api.params if p.output)
        yield from declarations(
            api.run,
            f"Computes {outputs}",
            f"{api.instance} *{free_name('instance', api.run)}",
            "what was created; any number of threads may run it at once",
        )
        yield "/* Frees an instance that no thread runs any more; NULL is none. */"
        yield f"void {api.destroy}({api.instance} *instance);"
        yield ""


def make_model_library(
    model: ModelCalls,
    kernels: Mapping[str, Kernel],
    weights: Mapping[str, Array],
    target: Target,
    threads: int,
    origin: str,
) -> ModelLibrary:
    """The library of a model, with a kernel for each task of the plan; `origin` says where their schedules are from.

    Weights are packed here, on this machine. Raises TschedError (E0912), CompileError and OutOfMemory.
    """
    require_free(model.name)
    api = ModelInterface(model.name, (*model.inputs, *model.outputs))
    # A number before the name: a task may be called like a function that is linked to it.
    kernels = {task: replace(k, name=f"{n}_{k.name}") for n, (task, k) in enumerate(kernels.items())}
    hands = {task: workers(k, target, threads) for task, k in kernels.items()}
    facts = {task: _facts(k, hands[task]) for task, k in kernels.items()}
    table = call_table(model.plan, facts, [p.name for p in api.params], {n: a.nbytes for n, a in weights.items()})
    preparing = {b.task for b in table.blocks}
    packed = packed_weights(table, facts, {t: _preparing(kernels[t], hands[t]) for t in preparing}, weights)
    texts = tuple(kernel_text(k, target, hands[task]) for task, k in kernels.items())
    whole = sha256(packed.data)
    for text in texts:
        whole.update(text.encode())
    mark = int.from_bytes(whole.digest()[:WORD], "little", signed=True)
    packed[:HEAD].view("<i8")[:2] = mark, packed.size
    machine = Machine(target)
    module = Module()
    described = describe(api, target, machine.triple, threads, origin, metadata.version("tensorc-dsl"))
    module.functions.append(text_constant(api.metadata, described.encode()))
    _write_table(module, api, table, {t: symbol_of(k) for t, k in kernels.items()})
    bytes_ = packed.size if packed.size > HEAD else 0
    check = add_check(module, model.name, target)
    _write_create(module, api, check, bytes_, mark, table.workspace_bytes)
    _write_run(module, api, check, table.workspace_bytes)
    write_checked(module, api, api.run, check)
    _write_destroy(module, api, check, bytes_)
    main = machine.parsed(module.text())
    parallel = any(f"@{PARALLEL_FOR}(" in text for text in texts)
    others = [ahead_text("scratch"), _instance_text(machine.triple), runtime_text("calls")]
    for text in (*others, *([pool_text(machine.triple)] if parallel else [])):
        link(main, machine.parsed(text))
    return ModelLibrary(api, target, threads, origin, str(main), texts, packed)


def _facts(k: Kernel, threads: int) -> TaskFacts:
    def fixed(size: Expr) -> int:
        n = fixed_bytes(size)
        if n is None or n > MOST_BYTES:
            raise CompileError(f"`{k.name}` takes more memory than there is")
        return n

    scratch, preparing = (fixed(workspace_size(body, threads)) for body in (k.body, k.preparation))
    return TaskFacts(k.params, k.kept, scratch, fixed(prepared_size(k)), preparing)


def _preparing(k: Kernel, threads: int) -> Code:
    """Code of this process that prepares for a kernel, which may be for another machine: what it writes is the same."""
    host = Target(cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten())
    return load(compile_kernel(replace(k, body=(), streamed=frozenset()), host, threads)).code


def _instance_text(triple: str) -> str:
    # O_NONBLOCK and O_CLOEXEC as the systems number them: Linux, or macOS.
    text = ahead_text("instance").replace("OPEN_FLAGS", str(0x80800 if "linux" in triple else 0x1000004))
    for status in (Status.MEMORY, Status.FILE, Status.WEIGHTS):
        text = text.replace(f"ret i32 {status.name}", f"ret i32 {status.value}")
    return text


# The functions and data of the module.


def _table(api: ModelInterface) -> str:
    return f"{api.name}.table"


def _write_table(module: Module, api: ModelInterface, table: Table, symbols: Mapping[str, str]) -> None:
    """Add the table of the calls as constants."""
    slots = [f"{{ i64, i64 }} {{ i64 {s.position}, i64 {s.offset} }}" for c in table.calls for s in c.slots]
    calls: list[str] = []
    first = 0
    for c in table.calls:
        symbol = "tensorc_copy" if not c.task else symbols[c.task]
        if c.prepares:
            symbol = prepare_symbol(symbol)
        module.declare("void", symbol, ("ptr", "ptr"))
        calls.append(f"{{ ptr, i64, i64 }} {{ ptr @{symbol}, i64 {first}, i64 {len(c.slots)} }}")
        first += len(c.slots)
    head = f"i64 {len(calls)}, ptr @{api.name}.calls, ptr @{api.name}.slots, i64 {table.arguments_at}"
    module.functions += [
        f"@{api.name}.slots = internal constant [{len(slots)} x {{ i64, i64 }}] [{', '.join(slots)}], align 8",
        f"@{api.name}.calls = internal constant [{len(calls)} x {{ ptr, i64, i64 }}] [{', '.join(calls)}], align 8",
        f"@{_table(api)} = internal constant {{ i64, ptr, ptr, i64 }} {{ {head} }}, align 8",
    ]


def _write_create(
    module: Module, api: ModelInterface, check: Check | None, bytes_: int, mark: int, workspace: int
) -> None:
    entry = Entry(module, check)
    entry.check_pointer("%path", 1, 0, bytes_)
    entry.check_pointer("%out", WORD, 1, WORD)
    module.declare("i32", "tensorc_instance_create", ("ptr", "i64", "i64", "i64", "ptr"))
    given = f"ptr %path, i64 {bytes_}, i64 {mark}, i64 {workspace}, ptr %out"
    result = entry.f.op(f"call i32 @tensorc_instance_create({given})")
    entry.define(api.create, ["ptr %path", "ptr %out"], result)


def _write_run(module: Module, api: ModelInterface, check: Check | None, workspace: int) -> None:
    entry = Entry(module, check)
    f = entry.f
    count = len(api.params)
    spans = [Span(f"%p{k}", fixed_bytes(bytes_of(p)) or 0, p.dtype.bytes, p.output) for k, p in enumerate(api.params)]
    entry.check_spans(spans)
    entry.check_pointer(MEMORY, WORD, count, WORD)
    weights = f.op(f"load ptr, ptr {f.op(f'getelementptr i8, ptr {MEMORY}, i64 {WORD}')}, align {WORD}")
    arguments = f.alloca("ptr", count + 2)
    for k, value in enumerate((f"@{_table(api)}", *(s.pointer for s in spans), weights)):
        f.line(f"store ptr {value}, ptr {f.op(f'getelementptr ptr, ptr {arguments}, i64 {k}')}, align {WORD}")
    declare_scratch(module)
    module.declare("void", "tensorc_run_calls", ("ptr", "ptr"))
    block = f.op(f"call ptr @tensorc_scratch_take(ptr {MEMORY}, i64 {workspace})")
    entry.fail_if(f.op(f"icmp eq ptr {block}, null"), Status.MEMORY)
    f.line(f"call void @tensorc_run_calls(ptr {arguments}, ptr {block})")
    f.line(f"call void @tensorc_scratch_give(ptr {MEMORY}, ptr {block})")
    entry.define(api.run.name, [*(f"ptr {s.pointer}" for s in spans), f"ptr {MEMORY}"], str(int(Status.OK)))


def _write_destroy(module: Module, api: ModelInterface, check: Check | None, bytes_: int) -> None:
    f = Function(module)
    module.declare("void", "tensorc_instance_destroy", ("ptr", "i64"))
    f.line(f"call void @tensorc_instance_destroy(ptr {MEMORY}, i64 {bytes_})")
    attributes = check.attributes if check else ""
    f.define(f"define void @{api.destroy}(ptr {MEMORY}) nounwind {attributes}")
