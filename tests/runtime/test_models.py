"""Models in this process: what a call takes and gives, on which memory, and what is refused."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tensorc_dsl.backend.llvm.runtime.call_table import CallTable
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api.models import LoadedModel, load_model, model_of
from tensorc_dsl.faces.cli import measured
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.faces.packages import Resolver
from tensorc_dsl.graph.weights import weights_parts

COMPUTES = """
space plain for llvm {}
compute relu(X: f32[N]) -> Y: f32[N] { Y[i] = max(X[i], 0.0) }
compute add(A: f32[N], B: f32[N]) -> Y: f32[N] { Y[i] = A[i] + B[i] }
compute both(X: f32[N]) -> Y: f32[N], Z: f32[N] {
    Y[i] = -X[i]
    Z[i] = X[i] * 2.0
}
compute total(X: f32[N]) -> Y: f32 { Y = sum[i] X[i] }
compute dense(X: f32[M, K], W: const f32[K, N], b: const f32[N]) -> Y: f32[M, N] {
    let V[k, j] = W[k, j] * 2.0
    let S[i, j] = sum[k] X[i, k] * V[k, j]
    Y[i, j] = S[i, j] + b[j]
}
compute scaled(X: f32[N], s: f32) -> Y: f32[N] { Y[i] = X[i] * s }
"""


@cache
def model(text: str, threads: int = 1) -> LoadedModel:
    checked = load_source(Source.of(f"{COMPUTES}\n{text}".encode(), "m.tsched"), Resolver("m.tsched", ()))
    return model_of(checked, "m", threads)


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


ODD = """
model m(x: f32[6]) -> y: f32[2, 3], z: f32[6], same: f32[6], back: f32[3, 2], n: f32[6] {
    let a = relu(x)
    y = reshape(a, [2, 3])
    z = add(a, a)
    same = reshape(y, [6])
    back = reshape(x, [3, 2])
    let (_, b) = both(z)
    let c = reshape(b, [2, 3])
    let d = reshape(c, [6])
    n = add(d, x)
}
"""


def test_outputs_that_are_used_views_and_copies() -> None:
    m, x = model(ODD), floats(6)
    y, z, same, back, n = m(x)
    a = np.maximum(x, 0)
    np.testing.assert_array_equal(y, a.reshape(2, 3))
    np.testing.assert_array_equal(z, a + a)
    np.testing.assert_array_equal(same, a)
    np.testing.assert_array_equal(back, x.reshape(3, 2))
    np.testing.assert_array_equal(n, (a + a) * 2 + x)
    arrays = (x, y, z, same, back, n)
    assert not any(np.shares_memory(p, q) for k, p in enumerate(arrays) for q in arrays[:k])
    assert all(o.flags.writeable for o in arrays[1:])


def test_a_scalar_and_a_value_used_twice() -> None:
    m = model("""
model m(x: f32[5], s: f32) -> t: f32, y: f32[5] {
    let a = scaled(x, s)
    t = total(a)
    y = scaled(a, t)
}
""")
    x = floats(5)
    for s in (np.float32(3), np.array(3, np.float32), 3.0):
        t, y = m(x, s)
        assert t.shape == () and np.isclose(t, (x * 3).sum(), rtol=1e-6)
        np.testing.assert_allclose(y, x * 3 * t, rtol=1e-6)


def test_values_without_elements() -> None:
    m = model("""
model m(x: f32[0], u: f32[3]) -> y: f32[0], t: f32, v: f32[3] {
    let a = relu(x)
    y = add(a, x)
    t = total(y)
    v = scaled(u, t)
}
""")
    y, t, v = m(np.empty(0, np.float32), floats(3))
    assert y.shape == (0,) and t == 0 and not v.any()


def test_outputs_are_written_where_they_are_wanted() -> None:
    m, x = model(ODD), floats(6)
    wanted = m(x)
    given = [np.full_like(w, np.nan) for w in wanted]
    made = m(x, out=given)
    assert all(p is q for p, q in zip(made, given, strict=True))
    named = dict(zip(m.outputs, (np.full_like(w, np.nan) for w in wanted), strict=True))
    assert all(q is named[n] for n, q in m.outputs_of(x=x, **named).items())
    for got in (given, named.values()):
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("given", "named", "why"),
    [
        ((), {}, "the inputs of `m` are x; given are none"),
        ((floats(6),) * 7, {}, "the inputs of `m` are x"),
        ((), {"y": floats(6)}, "the inputs of `m` are x; given are y"),
        ((floats(6),), {"w": floats(6)}, "given are x, w"),
        ((floats(6),), {"x": floats(6)}, "given twice"),
        ((floats(6),), {"y": floats(2, 3)}, "all outputs or none"),
        ((floats(6),), {"out": [floats(2, 3)]}, "`out` has 1 array; the outputs are y, z, same, back, n"),
        ((floats(7),), {}, r"expected shape \(6,\), got \(7,\)"),
        ((floats(6).astype(np.float64),), {}, "expected float32"),
        (([0.0] * 6,), {}, "expected an array, got list"),
    ],
)
def test_what_is_refused(given: tuple[Any, ...], named: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        model(ODD)(*given, **named)


def test_an_output_in_the_memory_of_an_input_is_refused() -> None:
    m = model("model m(x: f32[6]) -> y: f32[6] { let a = relu(x); y = relu(a) }".replace(";", "\n"))
    x = floats(6)
    with pytest.raises(ValueError, match="share memory"):
        m(x, out=x)
    np.testing.assert_array_equal(m(x, out=np.empty(6, np.float32)), np.maximum(x, 0))


def test_inputs_may_lie_in_any_order() -> None:
    m = model("""
model m(x: f32[2, 3]) -> y: f32[6] {
    let a = reshape(x, [6])
    y = relu(a)
}
""")
    x = floats(3, 2).T
    np.testing.assert_array_equal(m(x), np.maximum(x.reshape(6), 0))
    whole = floats(4, 12)
    np.testing.assert_array_equal(m(x=whole[::2, ::4]), np.maximum(whole[::2, ::4].reshape(6), 0))
    askew = np.frombuffer(b"-" + x.tobytes(), np.float32, offset=1).reshape(2, 3)
    np.testing.assert_array_equal(m(askew), np.maximum(x.reshape(6), 0))


class Exported:
    """An array of a library that has DLPack and nothing else."""

    def __init__(self, a: Any) -> None:
        self.a = a

    def __dlpack__(self, **wishes: Any) -> Any:
        return self.a.__dlpack__(**wishes)

    def __dlpack_device__(self) -> Any:
        return self.a.__dlpack_device__()


def test_arrays_with_dlpack() -> None:
    m, x = model(ODD), floats(6)
    y = [np.zeros_like(o) for o in m(x)]
    for a, b in zip(m(Exported(x), out=list(map(Exported, y))), m(x), strict=True):
        assert isinstance(a, Exported)
        np.testing.assert_array_equal(a.a, b)
    np.testing.assert_array_equal(m(x=Exported(x))[1], y[1])


def test_arrays_of_other_libraries() -> None:
    torch = pytest.importorskip("torch")
    m, x = model(ODD), floats(6)
    made = m(torch.from_numpy(x))
    assert all(isinstance(o, torch.Tensor) for o in made)
    for a, b in zip(made, m(x), strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
    given = [torch.zeros(o.shape) for o in made]
    assert all(p is q for p, q in zip(m(torch.from_numpy(x), out=given), given, strict=True))
    np.testing.assert_array_equal(given[4].numpy(), made[4].numpy())


WEIGHTED = """
model m(x: f32[3, 5]) -> y: f32[3, 5], z: f32[3, 4]
weights "w.safetensors" sha256 "DIGEST" (v: f32[25], w: f32[5, 4], b: f32[5], c: f32[4]) {
    let square = reshape(v, [5, 5])
    let h = dense(x, square, b)
    let g = dense(h, square, b)
    y = dense(g, square, b)
    z = dense(y, w, c)
}
"""


def weighted(folder: Path, threads: int = 1) -> tuple[LoadedModel, dict[str, Any]]:
    tensors = {"v": floats(25, seed=1), "w": floats(5, 4, seed=2), "b": floats(5, seed=3), "c": floats(4, seed=4)}
    data = b"".join(weights_parts(tensors))
    (folder / "w.safetensors").write_bytes(data)
    (folder / "m.tsched").write_text(COMPUTES + WEIGHTED.replace("DIGEST", sha256(data).hexdigest()))
    return load_model(folder / "m.tsched", threads=threads), tensors


def by_numpy(x: Any, t: dict[str, Any]) -> tuple[Any, Any]:
    y = x.astype(np.float64)
    for _ in range(3):
        y = y @ (2.0 * t["v"].reshape(5, 5)) + t["b"]
    return y, y @ (2.0 * t["w"]) + t["c"]


def test_weights_are_packed_once(tmp_path: Path) -> None:
    m, tensors = weighted(tmp_path)
    x = floats(3, 5)
    for made, wanted in zip(m(x), by_numpy(x, tensors), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)
    calls = m.runtime.calls
    assert isinstance(calls, CallTable)
    table = calls.table
    assert not any(c.prepares for c in table.calls)
    assert len(table.blocks) == 2, "equal weights share a block"
    assert sorted(table.copies) == ["b", "c"], "what is prepared is not needed itself"


def test_constant_inputs_that_are_computed_are_prepared_in_each_run() -> None:
    m = model("""
model m(x: f32[5, 5], b: f32[5]) -> y: f32[5, 5] {
    let h = dense(x, x, b)
    y = dense(h, x, b)
}
""")
    for seed in (0, 1):
        x, b = floats(5, 5, seed=seed), floats(5, seed=seed + 5)
        h = x @ (2 * x) + b
        np.testing.assert_allclose(m(x, b), h @ (2 * x) + b, rtol=1e-4, atol=1e-4)


def test_of_some_constant_inputs_that_are_weights(tmp_path: Path) -> None:
    b = floats(5)
    data = b"".join(weights_parts({"b": b}))
    (tmp_path / "w.safetensors").write_bytes(data)
    text = f"""
model m(x: f32[5, 5]) -> y: f32[5, 5], same: f32[5, 1]
weights "w.safetensors" sha256 "{sha256(data).hexdigest()}" (b: f32[5])
{{
    let h = dense(x, x, b)
    y = dense(x, h, b)
    same = reshape(b, [5, 1])
}}
"""
    (tmp_path / "m.tsched").write_text(COMPUTES + text)
    x = floats(5, 5, seed=1)
    y, same = load_model(tmp_path / "m.tsched", threads=1)(x)
    np.testing.assert_allclose(y, x @ (2 * (x @ (2 * x) + b)) + b, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(same, b.reshape(5, 1))


def test_calls_at_once_have_memory_each(tmp_path: Path) -> None:
    m, tensors = weighted(tmp_path, threads=2)

    def right(seed: int) -> bool:
        x = floats(3, 5, seed=seed)
        wanted = by_numpy(x, tensors)
        return all(
            np.allclose(a, b, rtol=1e-4, atol=1e-4) for _ in range(20) for a, b in zip(m(x), wanted, strict=True)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(right, range(16)))


def test_an_interrupt_does_no_harm() -> None:
    m, x = model(ODD), floats(6)
    wanted = m(x)
    # What runs in the background of a shell ignores the signal, and so would its tests.
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)

    def endless(running: threading.Event) -> None:
        while True:
            m(x)
            running.set()

    def interrupted(running: threading.Event, delay: float) -> None:
        running.wait()
        time.sleep(delay)
        signal.raise_signal(signal.SIGINT)

    try:
        for delay in (0.0005, 0.001, 0.002):
            running = threading.Event()
            timer = threading.Thread(target=interrupted, args=(running, delay))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                endless(running)
            timer.join()
            for a, b in zip(m(x), wanted, strict=True):
                np.testing.assert_array_equal(a, b)
    finally:
        signal.signal(signal.SIGINT, usual)


def test_what_a_step_takes_and_how_long_it_takes(tmp_path: Path) -> None:
    m, tensors = weighted(tmp_path)
    x = floats(3, 5)
    runtime = m.runtime
    assert runtime.steps == (runtime.steps[0],) * 3 + (runtime.steps[3],) and len({*runtime.steps}) == 2
    h = x @ (2 * tensors["v"].reshape(5, 5)) + tensors["b"]
    given = runtime.arguments_of({"x": x}, 1)
    np.testing.assert_allclose(given[0], h, rtol=1e-5)
    np.testing.assert_array_equal(given[1], tensors["v"].reshape(5, 5))
    np.testing.assert_array_equal(given[2], tensors["b"])
    times = runtime.step_times({"x": x}, 3)
    assert [len(row) for row in times] == [4] * 3 and all(t >= 0 for row in times for t in row)


def test_the_command_runs_a_model_on_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "MOST_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    Path("m.tsched").write_text(
        COMPUTES + "model m(x: f32[2, 3], s: f32[3]) -> y: f32[6] {\n    let a = reshape(x, [6])\n"
    )
    with Path("m.tsched").open("a") as file:
        file.write("    y = relu(a)\n}\n")

    def said(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["run", "m.tsched", "--threads", "1", *words])
        return done.exit_code, done.output

    x = floats(2, 3)
    np.save("x.npy", x.T.copy().T)
    np.savez("all.npz", x=-x, s=floats(3))
    for word, wanted in (("x=x.npy", x), ("all.npz", -x)):
        assert said("--input", word, "--results", "y.npz")[0] == 0
        np.testing.assert_array_equal(np.load("y.npz")["y"], np.maximum(wanted, 0).reshape(6))
    Path("bad.npz").write_bytes(b"PK\3\4")
    for word, why in (
        ("x=none.npy", "No such file"),
        ("none.npz", "No such file"),
        ("x.npy", "has no arrays by name"),
        ("bad.npz", "has no arrays by name"),
        ("x=m.tsched", "is no array of NumPy"),
        ("z=x.npy", "`z` is no input of the model; they are x, s"),
        ("s=x.npy", "expected shape (3,), got (2, 3)"),
    ):
        code, output = said("--input", word)
        assert code == 2 and why in " ".join(output.split()), output
    assert said("--results", "none/y.npz")[0] == 1
