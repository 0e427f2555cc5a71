"""Atomic updates: right in each order of threads for each type and operation, and a plain one in their place is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.codegen.view import cuda_text
from tensorc_dsl.backend.cuda.lower import lower
from tensorc_dsl.backend.cuda.lower.kernels import Device, DeviceProgram, Nested, Phase, atomics_in, barriers_in
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program, Store
from tensorc_dsl.lower.flat import Flat, LowerError
from tests.gpu.kernels import ptx, without_barrier
from tests.programs import proof_fault

PLACES = 5
"""The elements that are updated, fewer than the lanes of a warp."""


def updates(t: str, value: str, start: str, terms: int = 100, note: str = "exact", reducer: str = "") -> Program:
    """Threads of blocks update the elements that `L` says, by `value` of the old one `H[vv]` and `X[vi]`."""
    named = f' @("reducer", "{reducer}")' if reducer else ""
    grid = -(-terms // 32)
    text = f"""
    program updates(X: {t}[{terms}], L: i32[{terms}], H: {t}[{PLACES}]) {{
        bound("block.x") for u in 1 {{
            bound("thread.x") for w in {PLACES} {{
                block H_init {{ spatial vv in {PLACES} = w; H[vv] = {start} }}
            }}
        }}
        bound("block.x") for b in {grid} {{
            bound("thread.x") for i in 32 {{
                for v in {PLACES} @("scatter", true) {{
                    block H @("atomic", "{note}"){named} {{
                        spatial vv in {PLACES} = v
                        reduce vi in {terms} = b * 32 + i
                        where b * 32 + i < {terms}
                        H[vv] = {value}
                    }}
                }}
            }}
        }}
    }}
    """
    return parse_program(Source("updates", text))


def chosen(start: str) -> str:
    """A term, or the neutral element where it belongs to another place."""
    return f"(X[vi] if L[vi] == i32(vv) else {start})"


def by_place(f: Callable[[Array], object], empty: object) -> Callable[[Array, Array], Array]:
    """The results of a NumPy reduction at each place."""
    return lambda x, at: np.array([f(x[at == p]) if (at == p).any() else empty for p in range(PLACES)])


KINDS: dict[str, tuple[str, str, str, str, Callable[[Array, Array], Array]]] = {
    "i32 +": ("i32", f"H[vv] + {chosen('0')}", "0", "atom.global.add.u32", by_place(np.sum, 0)),
    "u32 min": ("u32", f"min(H[vv], {chosen('4294967295')})", "4294967295", "min.u32", by_place(np.min, 2**32 - 1)),
    "i32 max": ("i32", f"max(H[vv], {chosen('-2147483648')})", "-2147483648", "max.s32", by_place(np.max, -(2**31))),
    "i64 +": ("i64", f"H[vv] + {chosen('0')}", "0", "atom.global.add.u64", by_place(np.sum, 0)),
    "i64 min": ("i64", f"min(H[vv], {chosen('9223372036854775807')})", "9223372036854775807", "min.s64",
                by_place(np.min, 2**63 - 1)),
    "u64 max": ("u64", f"max(H[vv], {chosen('0')})", "0", "max.u64", by_place(np.max, 0)),
    "i32 *": ("i32", f"H[vv] * {chosen('1')}", "1", "cas.b32", by_place(np.prod, 1)),
    "f32 +": ("f32", f"H[vv] + {chosen('0.0')}", "0.0", "atom.global.add.f32", by_place(np.sum, 0)),
    "f64 +": ("f64", f"H[vv] + {chosen('0.0')}", "0.0", "atom.global.add.f64", by_place(np.sum, 0)),
    "f32 max": ("f32", f"max(H[vv], {chosen('-inf')})", "-inf", "cas.b32", by_place(np.max, -np.inf)),
    "f64 min": ("f64", f"min(H[vv], {chosen('inf')})", "inf", "cas.b64", by_place(np.min, np.inf)),
    "any": ("bool", "H[vv] or X[vi] and L[vi] == i32(vv)", "false", "st.relaxed.gpu.global.b8", by_place(np.any, False)),
    "all": ("bool", "H[vv] and (X[vi] or L[vi] != i32(vv))", "true", "st.relaxed.gpu.global.b8", by_place(np.all, True)),
}  # fmt: skip


def inputs(t: str, terms: int, seed: int = 0) -> dict[str, Array]:
    """Numbers, and their places, some of which are beyond all elements."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3 if t[0] in "if" else 0, 4, terms)
    dtype = {
        "bool": np.bool_,
        "i32": np.int32,
        "u32": np.uint32,
        "u64": np.uint64,
        "i64": np.int64,
        "f32": np.float32,
        "f64": np.float64,
    }
    return {"X": x.astype(dtype[t]), "L": rng.integers(-1, PLACES + 2, terms).astype(np.int32)}


@pytest.mark.corpus
@pytest.mark.parametrize("case", KINDS)
def test_updates_of_each_kind_are_exact_in_each_order_of_threads(case: str) -> None:
    t, value, start, instruction, expected = KINDS[case]
    for terms in (0, 1, 100) if case == "i32 +" else (100,):
        program = updates(t, value, start, terms, note="any order" if t[0] == "f" and "+" in case else "exact")
        given = inputs(t, terms)
        found = lower_device(program)
        assert (instruction in ptx(found, "sm_80")) == (terms > 0)
        fault, outputs = emulated(found, program, given)
        assert fault == ""
        for out in outputs:
            np.testing.assert_array_equal(out["H"], expected(given["X"], given["L"]))


def test_the_greatest_of_floats_is_nan_where_one_is() -> None:
    t, value, start, _, _ = KINDS["f32 max"]
    program = updates(t, value, start)
    given = inputs(t, 100)
    given["X"][17], given["L"][17] = np.nan, 2
    fault, outputs = emulated(lower_device(program), program, given)
    assert fault == ""
    for out in outputs:
        np.testing.assert_array_equal(np.isnan(out["H"]), [p == 2 for p in range(PLACES)])


def test_a_reducer_of_a_file_is_compared_and_exchanged() -> None:
    """The old value stands twice in it."""
    value = f"(H[vv] + {chosen('0')} - H[vv] / 7 * 7) % 7"
    program = updates("i32", value, "0", reducer="modulo(a, b) = (a + b - a / 7 * 7) % 7 identity 0")
    given = inputs("i32", 100)
    found = lower_device(program)
    assert "cas.b32" in ptx(found, "sm_80")
    fault, outputs = emulated(found, program, given)
    assert fault == ""
    for out in outputs:
        np.testing.assert_array_equal(out["H"], by_place(lambda x: x.sum() % 7, 0)(given["X"], given["L"]))


def plain(p: DeviceProgram) -> DeviceProgram:
    """The kernels with plain stores in place of atomic ones."""

    def flat(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
        return tuple(replace(s, atomic="") if isinstance(s, Store) else replace(s, body=flat(s.body)) for s in body)

    def device(body: tuple[Device, ...]) -> tuple[Device, ...]:
        out: list[Device] = []
        for s in body:
            inner = replace(s, body=flat(s.body)) if isinstance(s, Phase) else s
            out.append(replace(s, body=device(s.body)) if isinstance(s, Nested) else inner)
        return tuple(out)

    return replace(p, kernels=tuple(replace(k, body=device(k.body)) for k in p.kernels))


@pytest.mark.parametrize("case", ["i32 +", "f32 max", "any"])
def test_a_plain_update_in_place_of_an_atomic_one_is_found(case: str) -> None:
    t, value, start, _, _ = KINDS[case]
    program = updates(t, value, start)
    fault, _ = emulated(plain(lower_device(program)), program, inputs(t, 100))
    assert "meet without a barrier between them at element" in fault and "of `H` in `H[v] = " in fault


SHARED = """
program sums(X: i32[96], S: i32[1], Y: i32[96]) {
    buffer T: i32[1] in "shared"
    bound("block.x") for u in 1 {
        for z in 1 {
            block S_init { spatial vz in 1 = z; S[vz] = 0 }
        }
    }
    bound("block.x") for b in 3 {
        for j in 1 {
            block T_init { spatial vj in 1 = j; T[vj] = 0 }
        }
        bound("thread.x") for i in 32 {
            block T @("atomic", "exact") {
                spatial vb in 3 = b
                reduce vi in 32 = i
                T[0] = T[0] + X[vb * 32 + vi]
            }
        }
        bound("thread.x") for k in 32 {
            block Y { spatial vb in 3 = b; spatial vk in 32 = k; Y[vb * 32 + vk] = T[0] }
        }
        for l in 1 {
            block S @("atomic", "exact") { spatial vl in 1 = l; reduce vb in 3 = b; S[vl] = S[vl] + T[0] }
        }
    }
}
"""


def test_barriers_are_around_the_updates_of_a_block_and_not_between_them() -> None:
    program = parse_program(Source("sums", SHARED))
    assert proof_fault(program, program) == ""
    found = lower_device(program)
    _, k = found.kernels
    assert atomics_in(k.body) == {"S", "T"} and barriers_in(k.body) == 2
    given = {"X": np.arange(96, dtype=np.int32)}
    fault, outputs = emulated(found, program, given)
    assert fault == ""
    sums = given["X"].reshape(3, 32).sum(1)
    for out in outputs:
        np.testing.assert_array_equal(out["Y"], np.repeat(sums, 32))
        np.testing.assert_array_equal(out["S"], [sums.sum()])
    for n in range(2):
        fault, _ = emulated(replace(found, kernels=(found.kernels[0], without_barrier(k, n))), program, given)
        assert "meet without a barrier between them at element 0 of `T`" in fault


def test_only_atomic_blocks_reduce_along_bound_loops() -> None:
    for wrong in (
        SHARED.replace('block S @("atomic", "exact")', "block S"),
        SHARED.replace("T[0] = T[0] + X[vb * 32 + vi]", "T[0] = T[0] - X[vb * 32 + vi]"),
        SHARED.replace('block T @("atomic", "exact")', 'block T @("atomic", "often")'),
    ):
        with pytest.raises(TschedError, match=r"cannot be atomic|runs over parallel loop"):
            parse_program(Source("wrong", wrong))


def test_what_other_blocks_read_while_it_is_updated_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the updates of its own block, others may still go on."""
    program = parse_program(Source("sums", SHARED.replace("Y[vb * 32 + vk] = T[0]", "Y[vb * 32 + vk] = S[0]")))
    assert "`b` touch `S[0]` at once" in proof_fault(program, program)
    with pytest.raises(LowerError, match="the bound loop `b` cannot run at once"):
        lower_device(program)
    monkeypatch.setattr(lower, "require_independent", lambda _: None)
    fault, _ = emulated(lower_device(program), program, {"X": np.arange(96, dtype=np.int32)})
    assert "meet without a barrier between them at element 0 of `S`" in fault


def test_updates_of_what_a_thread_owns_are_refused() -> None:
    program = parse_program(Source("sums", SHARED.replace('in "shared"', 'in "local"')))
    with pytest.raises(LowerError):
        lower_device(program)


def test_the_view_has_words_for_what_a_machine_adds() -> None:
    words = {"i32 +": "atomicAdd(&H[v], ", "i64 +": "atomicAdd((unsigned long long *)&H[v], (unsigned long long)",
             "i32 max": "atomicMax(&H[v], ", "any": "*(volatile bool *)&H[v] = true;"}  # fmt: skip
    for case, text in words.items():
        t, value, start, _, _ = KINDS[case]
        assert text in cuda_text(lower_device(updates(t, value, start)))
    t, value, start, _, _ = KINDS["f32 max"]
    text = cuda_text(lower_device(updates(t, value, start)))
    assert "atomicCAS(at_, was_, bitcast<unsigned>((float)most<float>(" in text and "(unsigned *)&H[v]" in text
