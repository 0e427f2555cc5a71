"""The parts of `bench.gpu`, each for a process of its own: `python -m bench.gpu_parts proofs 60` prints lines of JSON."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tensorc_dsl.api import Task, loads
from tensorc_dsl.backend.cuda.runtime.driver import Device, Missing, find
from tensorc_dsl.backend.cuda.runtime.image import Image, unpack
from tensorc_dsl.backend.cuda.runtime.timing import time_launches
from tensorc_dsl.backend.find import require_backend
from tensorc_dsl.backend.protocol import Code, CompiledKernel, LoadedKernel
from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.measure.outcome import Status
from tensorc_dsl.measure.timing import seconds_of
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import make_inputs

HEAD = "use std.ops\nuse std.gpu.default.{default}\nuse std.gpu.tensor_core.{tensor_core}\n"

DRAWS = 4
"""The schedules of each small task."""

ROUNDS, CALLS = 3, 20
"""How often two kernels take turns, and the launches of a turn."""

SMALL = {
    "matmul f32": "matmul(M=64, N=48, K=40)",
    "matmul f16": "matmul(M=64, N=64, K=32, T=f16, Acc=f32)",
    "matmul bf16": "matmul(M=64, N=64, K=32, T=bf16, Acc=f32)",
    "matmul i8": "matmul(M=64, N=48, K=40, T=i8, Acc=i32)",
    "matmul f64": "matmul(M=64, N=48, K=40, T=f64)",
    "batch_matmul": "batch_matmul(G=3, M=32, N=32, K=16)",
    "conv2d": "conv2d_nhwc(N=1, H=14, W=14, CI=16, KH=3, KW=3, CO=32, pad=1)",
    "depthwise": "depthwise_conv2d_nhwc(N=1, H=14, W=14, C=16, KH=3, KW=3, pad=1)",
    "softmax": "softmax(M=16, N=200)",
    "layer_norm": "layer_norm(M=16, N=200)",
    "attention": "attention(B=1, H=2, M=32, N=32, D=16, E=16)",
    "argmax": "argmax(M=16, N=200)",
    "cumsum": "cumsum(N=16, M=64)",
    "transpose": "transpose(M=70, N=50)",
}


class Row(msgspec.Struct, frozen=True):
    """A case: what is wrong, "" if nothing is; seconds of our kernel, and of another one that `beside` names."""

    case: str
    wrong: str = ""
    ours: float | None = None
    theirs: float | None = None
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows as they are found, until a moment of the clock; its weight in the time of all parts."""

    run: Callable[[float], Iterator[Row]]
    weight: float


class CannotRun(Exception):
    """This machine lacks something that the part needs."""


def require_time(until: float, name: str) -> None:
    """Raises CannotRun if the time is over: what was not measured is told."""
    if time.monotonic() > until:
        raise CannotRun(f"there was no time for `{name}` and what comes after it")


def device() -> Device:
    """The GPU of this machine. Raises CannotRun if there is none."""
    found = find()
    if isinstance(found, Missing):
        raise CannotRun(f"{found.what}: {found.repair}")
    return found


def task_of(text: str) -> Task:
    """A task on the GPU of this machine."""
    return loads(HEAD + definition("t", text), target="native-cuda")["t"]


def definition(name: str, text: str) -> str:
    """The item of a task, with tensor cores where they fit."""
    return f"task {name} = {text} with {'tensor_core' if 'f16' in text else 'default'}\n"


def small_draws(until: float) -> Iterator[tuple[str, Task, int]]:
    """Names, tasks and seeds: all tasks once, then again as far as there is time. Raises CannotRun if not all were tried."""
    tasks: dict[str, Task] = {}
    for seed in range(DRAWS):
        for name, text in SMALL.items():
            if seed == 0:
                require_time(until, name)
                tasks[name] = task_of(text)
            elif time.monotonic() > until:
                return
            yield f"{name} {seed}", tasks[name], seed


def proofs(until: float) -> Iterator[Row]:
    """Each draw against the reference, in a worker that a fault ends."""
    device()
    for name, task, seed in small_draws(until):
        try:
            found = task.measure(task.sample(seed))
        except TschedError as e:
            yield Row(name, wrong=str(e))
            continue
        right = found.status is Status.OK
        yield Row(name, "" if right else f"{found.status}: {found.message}", found.seconds)


def sanitizer(until: float) -> Iterator[Row]:
    """Each draw under the tools of compute-sanitizer."""
    device()
    checker = shutil.which("compute-sanitizer")
    if checker is None:
        raise CannotRun("there is no `compute-sanitizer` on PATH; it is part of the CUDA toolkit")
    for name in SMALL:
        for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
            require_time(until, f"{name} {tool}")
            asked = [
                checker,
                "--tool",
                tool,
                "--error-exitcode",
                "9",
                sys.executable,
                "-m",
                "bench.gpu_parts",
                "once",
                name,
            ]
            try:
                done = subprocess.run(
                    asked, capture_output=True, text=True, timeout=until - time.monotonic() + 60, check=False
                )
                words = [line for line in done.stdout.splitlines() if "=====" in line and line.strip("= ")]
                yield Row(f"{name} {tool}", "" if not done.returncode else "; ".join(words[:3]) or done.stderr[-200:])
            except subprocess.TimeoutExpired:
                yield Row(f"{name} {tool}", "it did not end in time")


def once(name: str) -> None:
    """Run one draw of a small task, for the sanitizer to watch."""
    task = task_of(SMALL[name])
    inputs = make_inputs(task.program, 0)
    loaded(task, task.compile(task.sample(0)))(*inputs.values())


def loaded(task: Task, compiled: CompiledKernel, ptx: str | None = None) -> LoadedKernel:
    """The kernels of a task on the GPU, by other PTX if it is given."""
    code = compiled.code
    if ptx is not None:
        image, _ = unpack(code.object_code)
        other: Image = msgspec.structs.replace(image, ptx=ptx)
        code = Code(msgspec.msgpack.encode(other), code.symbol, code.kept)
    return require_backend("cuda", task.name).load(code, task.program, task.threads)


def arrays_of(task: Task) -> list[Array]:
    """Random inputs, and room for outputs."""
    inputs = make_inputs(task.program, 0)
    return [
        inputs[b.name] if b.name in inputs else np.zeros(shape_of(b), stored_dtype(b.dtype))
        for b in task.program.params
    ]


def by_turns(ours: Callable[[int], list[float]], theirs: Callable[[int], list[float]]) -> tuple[float, float]:
    """The seconds of two kernels that take turns, after a launch of each to warm up."""
    for run in (ours, theirs):
        run(1)
    a: list[float] = []
    b: list[float] = []
    for _ in range(ROUNDS):
        a += ours(CALLS)
        b += theirs(CALLS)
    return seconds_of(tuple(a)), seconds_of(tuple(b))


def nvcc(until: float) -> Iterator[Row]:
    """Our PTX beside nvcc's of the same statements."""
    device()
    compiler = shutil.which("nvcc")
    if compiler is None:
        raise CannotRun("there is no `nvcc` on PATH; `pip install nvidia-cuda-nvcc` or the CUDA toolkit has one")
    for name, text in COMPARED.items():
        require_time(until, name)
        task = task_of(text)
        try:
            compiled = task.compile(task.sample(1))
            ptx = _by_nvcc(compiler, compiled.view("cuda"), task.target.cpu)
            ours, theirs = loaded(task, compiled), loaded(task, compiled, ptx)
            mine, yours = arrays_of(task), arrays_of(task)
            times = by_turns(lambda n, k=ours, a=mine: k.time(a, n), lambda n, k=theirs, a=yours: k.time(a, n))
            same = all(np.allclose(x, y, rtol=1e-3, atol=1e-3) for x, y in zip(mine, yours, strict=True))
            yield Row(name, "" if same else "the results differ", *times, "nvcc")
        except (TschedError, subprocess.SubprocessError) as e:
            yield Row(name, str(e))


def _by_nvcc(compiler: str, text: str, cpu: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "view.cu"), Path(folder, "view.ptx")
        source.write_text(text, encoding="utf-8")
        subprocess.run([compiler, f"-arch={cpu}", "-ptx", "-o", str(made), str(source)], check=True, timeout=120)
        return made.read_text(encoding="utf-8")


COMPARED = {
    "matmul f32": "matmul(M=512, N=512, K=512)",
    "matmul f16": "matmul(M=512, N=512, K=512, T=f16, Acc=f32)",
    "matmul bf16": "matmul(M=512, N=512, K=512, T=bf16, Acc=f32)",
    "matmul i8": "matmul(M=512, N=512, K=512, T=i8, Acc=i32)",
    "matmul f64": "matmul(M=512, N=512, K=512, T=f64)",
    "batch_matmul": "batch_matmul(G=16, M=256, N=256, K=64)",
    "conv2d": "conv2d_nhwc(N=1, H=56, W=56, CI=64, KH=3, KW=3, CO=64, pad=1)",
    "softmax": "softmax(M=1024, N=1024)",
    "layer_norm": "layer_norm(M=1024, N=1024)",
    "transpose": "transpose(M=1024, N=1024)",
}
"""Ten kernels, long enough to be timed."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A task, and the function of torch that computes the same on the tensors of its inputs."""

    text: str
    theirs: Callable[..., Any]


def _products() -> dict[str, Peer]:
    def product(torch: Any, a: Any, b: Any) -> Any:
        return torch.matmul(a, b)

    found: dict[str, Peer] = {}
    for size in (1024, 2048, 4096, 8192):
        for kind, more in (("f32", ""), ("f16", ", T=f16, Acc=f32"), ("bf16", ", T=bf16, Acc=f32")):
            found[f"matmul {kind} {size}"] = Peer(f"matmul(M={size}, N={size}, K={size}{more})", product)
    found["batch_matmul"] = Peer("batch_matmul(G=32, M=512, N=512, K=64)", product)
    return found


def _convolution(torch: Any, x: Any, f: Any) -> Any:
    weights = f.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    return torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), weights, padding=f.shape[0] // 2).permute(0, 2, 3, 1)


def _layer_norm(torch: Any, x: Any, gain: Any, shift: Any) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], gain, shift)


def _softmax(torch: Any, x: Any) -> Any:
    return torch.softmax(x, -1)


def _attention(torch: Any, q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


PEERS = {
    "softmax": Peer("softmax(M=4096, N=4096)", _softmax),
    "layer_norm": Peer("layer_norm(M=4096, N=4096)", _layer_norm),
    "attention": Peer("attention(B=1, H=16, M=1024, N=1024, D=64, E=64)", _attention),
    **{
        f"conv2d {size}×{size}×{c}": Peer(
            f"conv2d_nhwc(N=16, H={size}, W={size}, CI={c}, KH=3, KW=3, CO={c}, pad=1)", _convolution
        )
        for size, c in ((56, 64), (28, 128), (14, 256), (7, 512))
    },
    **_products(),
}
"""The cases beside torch: the layers of ResNet-50 with windows of 3×3, and what networks spend their time on."""


def torch_beside(until: float) -> Iterator[Row]:
    """Tuned kernels beside torch, on random data; each search has its share of the time."""
    gpu = device()
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as e:
        raise CannotRun(f"there is no torch ({e})") from e
    names = list(PEERS)
    for n, name in enumerate(names):
        require_time(until, name)
        peer, left = PEERS[name], until - time.monotonic()
        try:
            yield _beside(gpu, torch, name, peer, left / (len(names) - n) * 0.8)
        except (TschedError, RuntimeError, ValueError, MemoryError) as e:
            yield Row(name, str(e))


def _beside(gpu: Device, torch: Any, name: str, peer: Peer, seconds: float) -> Row:
    task = task_of(peer.text)
    with tempfile.TemporaryDirectory() as folder:
        best = task.tune(budget=seconds, records=Path(folder, "records.sqlite"), progress=False)
    kernel = loaded(task, task.compile(best.trace))
    outputs = {b.name for b in task.program.outputs}
    kinds = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
    tensors = [
        (torch.empty if b.name in outputs else torch.rand)(shape_of(b), device="cuda", dtype=kinds[b.dtype.name])
        for b in task.program.params
    ]
    given = [t for t, b in zip(tensors, task.program.params, strict=True) if b.name not in outputs]
    times = by_turns(
        lambda n: kernel.time(tensors, n), lambda n: time_launches(gpu, lambda: peer.theirs(torch, *given), n)
    )
    theirs = peer.theirs(torch, *given)
    error = float((tensors[-1].float() - theirs.float()).abs().max() / theirs.float().abs().max())
    return Row(name, "" if error < 0.02 else f"results differ by {error:.2g} of the largest", *times, "torch")


PARTS = {
    "proofs": Part(proofs, 1.0),
    "sanitizer": Part(sanitizer, 1.5),
    "nvcc": Part(nvcc, 0.5),
    "torch": Part(torch_beside, 6.0),
}


def main() -> int:
    name, value = sys.argv[1:]
    if name == "once":
        once(value)
        return 0
    try:
        for row in PARTS[name].run(time.monotonic() + float(value)):
            print(msgspec.json.encode(row).decode(), flush=True)
    except CannotRun as e:
        print(e, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
