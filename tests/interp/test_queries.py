"""The queries of a schedule, and their answers."""

from dataclasses import replace

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.queries.buffer import is_straight
from tensorc_dsl.schedule.query import query
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef, ScheduleRefusal
from tests.corpus import ROOT
from tests.interp.spaces import rng, schedule, space

ANSWERS = {
    "matmul": {
        "len(C.iters)": 3,
        "C.iters[2]": "vk",
        "C.kinds.count(\"S\")": 2,
        "C.kinds[2]": "R",
        "C.extents == [32, 48, 24]": True,
        "len(C.loops)": 3,
        "len(C.spatial_loops)": 2,
        "C.reduce_loops[0].name": "k",
        "C.has_reuse": True,
        "C.reuses(C.loops[0]) and C.reuses(C.loops[1]) and not C.reuses(C.loops[2])": True,
        "C.is_untouched": True,
        "C.is_output": True,
        "C.is_reduction": True,
        "C.is_injective": False,
        "C.is_rolled": False,
        "C.is_scan or C.is_scaled_scan or C.is_segmented_scan or C.is_window": False,
        "len(C.reads)": 2,
        "C.writes[0].name": "C",
        "len(C.producers) + len(C.consumers)": 0,
        "C.working_set(C.loops[0])": 4 * (24 + 24 * 48 + 48),
        "C.working_set(C.loops[1])": 4 * (24 + 24 + 1),
        "C.working_set(C.loops[2])": 4 * 3,
        "C.region(A, C.loops[0]) == [1, 24] and C.region(B, C.loops[1]) == [24, 1]": True,
        "C.region(C, C.loops[0]) == [1, 48]": True,
        "C.is_straight(A, C.loops)": True,
        # 4 bytes of 8 rows of A, and of as many columns of B: (8 + n) * 4 <= 200
        "C.fitting_tile(C.loops[1], [8], 200)": 42,
        "C.fitting_tile(C.loops[2], [8, 2], 200)": 5,
        "C.fitting_tile(C.loops[0], [], 7)": 0,
        "C.fitting_tile(C.loops[1], [32], 1024)": 1 << 20,
        "C.loops[0].children[0].name": "j",
        "len(C.loops[2].children)": 0,
        "C.loops[0].extent": 32,
        "C.loops[0].nominal_extent": 32,
        "C.is_region_open(A, C.loops[0])": False,
        "A.nominal_shape == A.shape and C.nominal_region(A, C.loops[0]) == C.region(A, C.loops[0])": True,
        "C.loops[2].kind": "R",
        "C.loops[1].mode": "serial",
        "C.loops[1].axis": "",
        "len(C.loops[1].after)": 0,
        "C.loops[1].depth": 1,
        "C.loops[0].is_serial": True,
        "C.loops[0].is_persistent": False,
        "C.loops[0].is_open": False,
        "C.loops[0].largest_divisor(24)": 16,
        "C.loops[0].tiles(5)": 7,
        "len(C.loops[0].blocks)": 1,
        "A.shape == [32, 24]": True,
        "A.dtype": "f32",
        "A.scope": "global",
        "A.bytes": 32 * 24 * 4,
        "A.bytes_per_element": 4,
        "A.is_param and not A.is_open": True,
        "A.is_constant": False,
        "A.readers[0].name": "C",
        "len(A.writers)": 0,
        "root.name": "matmul",
        "len(root.blocks)": 1,
        "len(root.inputs)": 2,
        "root.outputs[0].name": "C",
        "root.root.name": "matmul",
        "root.find_loop(\"for _ in 24\").name": "k",
        "len(root.find_loops(\"for _ in _ { … C += _ }\")) + len(C.loops[0].find_loops(\"for _ in _\"))": 5,
        "C.loops[1].find_loop(\"for _ in _\").name": "k",
        "root.find_block(\"C += A * B\").name": "C",
        "len(root.find_blocks(\"A = _\") + C.loops[2].find_blocks(\"block _\"))": 1,
        "target.kind": "llvm",
        "target.vector_bits": 256,
        "target.vector_registers": 16,
        "target.cores": 2,
        "target.l1 <= target.l2 and target.l2 <= target.l3": True,
        "target.has(\"avx2\") and not target.has(\"sse4a\")": True,
        "len(target.features)": 2,
        "target.shared_memory + target.threads + target.registers": 0,
        "C.threads * 10 + C.shared_bytes + C.registers": 10,
        "target.cpu": "generic",
        "\"SSRSRS\".rfind(\"S\")": 5,
        "\"SSRSRS\".rfind(\"S\", before=\"R\")": 1,
        "\"RS\".rfind(\"S\", before=\"R\")": -1,
        "\"SS\".rfind(\"S\", before=\"R\")": -1,
        "\"SSRSRS\".find(\"S\", after=\"R\")": 3,
        "\"SS\".find(\"S\", after=\"R\")": -1,
        "\"SSRSRS\".find(\"R\")": 2,
        "\"SSRSRS\".count(\"S\")": 4,
        "\"SSR\".contains(\"SR\")": True,
        "C.can_pad_einsum([5, 7, 1]) and not C.can_pad_einsum([1])": True,
        "C.loops[1].can_parallel and not C.loops[2].can_parallel": True,
        "C.loops[1].can_vectorize and not C.loops[2].can_vectorize": True,
        "C.loops[1].is_independent and not C.loops[2].is_independent": True,
        "C.loops[2].can_reorder(C.loops[0])": True,
        "C.can_fold_scan()": False,
        "C.can_split_scan(2)": False,
        "C.can_online_sums(2)": False,
        "C.kinds.find(\"R\")": 2,
        "C.kinds.find(\"X\")": -1,
        "C.loops.contains(C.loops[1])": True,
        "sum([1, 2, 4]) + product([2, 3]) + sum([])": 13,
        "len(C.loops[:2]) * 10 + len(C.loops[2:])": 21,
        "len(C.loops[-2:][:-1] + C.loops[1:-1] + C.loops[:])": 5,
        "len(C.loops[7:] + C.loops[:-7] + C.loops[2:1] + C.loops[-9:9])": 3,
        "C.loops[-1].name + C.loops[1:][-2].name": "kj",
        "\"SSRSRS\"[2:][:-1]": "RSR",
        "len([1][:9]) + len([1][9:]) + len([1][:-1])": 1,
        "reversed([1, 2])[0] + max([1, 5, 2]) - min(3, 1)": 6,
        "clamp(7, 1, 4) * 1000 + clamp(0, 1, 4) * 100 + clamp(2, 1, 4) * 10 + clamp(3, 4, 1)": 4121,
        "any(for l in C.loops { yield l.kind == \"R\" }) and not any(for l in C.loops { yield l.is_open })": True,
        "all(for l in C.loops { yield l.is_serial }) and not all(for l in C.loops { yield l.kind == \"S\" })": True,
        "any([]) or not all([])": False,
        "len(for l in C.loops if l.kind == \"S\" { yield l })": 2,
        "(for n in range(5) if n % 2 == 1 and n > 1 { yield n * 10 })[0]": 30,
        "len(for n in range(5) if n > 9 { yield n })": 0,
        "log2(8)": 3.0,
        "xor(12, 10)": 6,
        "within(3, 3..4, \"parts\")": 3,
        "tile_levels(\"SRS\", [[C.loops[0], C.loops[1]], [C.loops[2]]])[1][0].name": "k",
        "len(C.loops[2].around) * 10 + len(C.loops[0].around)": 20,
        "interleave(\"SRS\", [[C.loops[0], C.loops[1]], [C.loops[2]]])[1].name": "k",
    },
    "chain": {
        "E.consumers[0].name": "Y",
        "Y.producers[0].name": "E",
        "len(Y.ancestors) * 10 + len(E.ancestors)": 10,
        "E.is_injective and not E.is_output": True,
        "E.loops[0].kind": "S",
        "E.functions == [\"exp\"] and len(Y.functions) == 0": True,
        "E.writes[0].readers[0].name": "Y",
        "E.writes[0].writers[0].name": "E",
        "E.can_compute_inline and not Y.can_compute_inline": True,
        "Y.can_reverse_compute_inline and not E.can_reverse_compute_inline": True,
        "E.inlined_reads * 10 + Y.inlined_reads": 10,
        "E.is_read_in_place and not Y.is_read_in_place": True,
        "E.work * 10 + Y.work": 92,  # a read and a maths function; a read and a sum
        "E.inlined_work": 8,
        "E.annotated(\"rule\", 1) and not E.annotated(\"rule\", true)": True,
        "E.annotated(\"rule\", \"1\") or E.annotated(\"other\", 1) or Y.annotated(\"rule\", 1)": False,
        "E.can_compute_at(Y.loops[0]) and not Y.can_compute_at(E.loops[0])": True,
        "E.is_computed_once_at(Y.loops[0]) and not Y.is_computed_once_at(E.loops[0])": True,
        "E.loops[0].can_write_at(E) and not Y.loops[0].can_write_at(E)": True,
        "E.can_rolling_buffer(E.loops[0])": False,
        "Y.can_reverse_compute_at(E.loops[0])": True,
        "E.can_reverse_compute_at(E.loops[0])": False,
        "len(Y.scatter_loops) + len(Y.scatter_rows)": 0,
    },
    "table": {
        "T.can_rfactor(T.reduce_loops[0]) and not T.can_rfactor(T.loops[0])": True,
        "T.scatter_loops[0].name": "v",
        "T.can_be_atomic(true) and not T.can_be_atomic(false)": True,
        "T.scatter_rows[0].name": "j",
        "len(T.scatter_loops) * 10 + len(T.scatter_rows)": 11,
        "T.is_ragged": False,
    },
    "ragged": {
        "Y.is_ragged and Y.has_reuse": True,
        "not Y.reuses(Y.loops[0]) and Y.reuses(Y.loops[1])": True,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("compute", "question"), [(c, q) for c, table in ANSWERS.items() for q in table], ids=lambda x: x
)
def test_answers(compute: str, question: str) -> None:
    trace = schedule(f'annotate(root, "answer", {question})', compute=compute).sample(rng())
    assert dict(trace.program.annotations) == {"answer": ANSWERS[compute][question]}


@pytest.mark.parametrize(
    ("steps", "untouched"),
    [
        ("", True),
        ("split(Y.loops[0], [_, 4])", True),
        ("vectorize(Y.loops[1])", True),
        ("parallel(Y.loops[0])", False),
        ("compute_at(E, Y.loops[0])", False),
        ("compute_at(E, Y.loops[1])", False),
    ],
)
def test_a_block_is_untouched_until_its_outermost_loop_is_shared_or_runs_otherwise(steps: str, untouched: bool) -> None:
    trace = schedule(steps, 'annotate(root, "answer", Y.is_untouched)', compute="chain").sample(rng())
    assert dict(trace.program.annotations) == {"answer": untouched}


def test_a_block_without_loops_is_not_untouched() -> None:
    program = parse_program(Source("p", "program p(A: f32[1]) {\n    block B { A[0] = 1.0 }\n}\n"))
    assert QUERIES[BlockRef]["is_untouched"].function(program, BlockRef("B")) is False


@pytest.mark.parametrize(("m", "n", "reused"), [(1, 1, False), (2, 1, True), (1, 2, True)])
def test_an_iterator_of_one_value_reads_nothing_again(m: int, n: int, reused: bool) -> None:
    s = space('schedule s for matmul { annotate(root, "answer", C.has_reuse) }', m=m, n=n)
    assert dict(s.sample(rng()).program.annotations) == {"answer": reused}


MAPPED = {
    'C.tensorizable("mma")': True,
    'C.tensorizable("dot")': False,
    'C.tensor_mappings("mma") == ["i=vi, j=vj, k=vk", "i=vj, j=vi, k=vk"]': True,
    'len(C.tensor_mappings("dot"))': 0,
    'C.tensor_tile("mma", "i=vi, j=vj, k=vk") == [4, 16, 8]': True,
    'C.tensor_tile("mma", C.tensor_mappings("mma")[1]) == [16, 4, 8]': True,
    "C.tensorizable(mma)": True,
    "mma.runs or mma.fits(C)": False,
    "mma.mappings(C) == C.tensor_mappings(mma)": True,
    "mma.shapes == [[4, 8], [8, 16], [4, 16]]": True,
    'mma.scopes[0] == "global"': True,
    'mma.players(C) == [["vi"], ["vj"], ["vk"]]': True,
    "len(dot.players(C))": 0,
    "C.loops[0].can_tensorize(mma)": False,
}
INSTRUCTIONS = """
intrinsic mma desc (A: f32[4, 8], B: f32[8, 16], C: f32[4, 16]) { C[i, j] += sum[k] A[i, k] * B[k, j] }
intrinsic dot desc (A: u8[4], B: i8[16, 4], C: i32[16]) { C[i] += sum[k] i32(A[k]) * i32(B[i, k]) }
program none(A: f32[1]) { block b { A[0] = 0.0 } }
"""


def with_instructions(*lines: str) -> Space:
    s = schedule(*lines)
    return replace(s, program=replace(s.program, intrinsics=parse_program(Source("i", INSTRUCTIONS)).intrinsics))


@pytest.mark.parametrize("question", MAPPED)
def test_mappings_onto_instructions(question: str) -> None:
    trace = with_instructions(f'annotate(root, "answer", {question})').sample(rng())
    assert dict(trace.program.annotations) == {"answer": MAPPED[question]}


@pytest.mark.parametrize(("rows", "taken"), [(4, True), (8, False)])
def test_whether_a_nest_is_an_instruction_is_tried(rows: int, taken: bool) -> None:
    trace = with_instructions(
        "let [i, j, k] = C.loops",
        f"let [i0, i1] = split(i, [_, {rows}]); let [j0, j1] = split(j, [_, 16]); let [k0, k1] = split(k, [_, 8])",
        "reorder(i0, j0, k0, i1, j1, k1)",
        "decompose_reduction(C, k0)",
        'annotate(root, "answer", i1.can_tensorize(mma) and not k1.can_tensorize(mma))',
    ).sample(rng())
    assert dict(trace.program.annotations) == {"answer": taken}


def test_a_mapping_is_drawn_and_a_trace_can_say_it() -> None:
    s = with_instructions('let m ~ sample_categorical(C.tensor_mappings("mma"))', 'annotate(root, "m", m)')
    traces = [s.sample(rng(n)) for n in range(16)]
    assert {dict(t.program.annotations)["m"] for t in traces} == {"i=vi, j=vj, k=vk", "i=vj, j=vi, k=vk"}


@pytest.mark.parametrize(
    ("question", "code", "help"),
    [
        ('C.tensorizable("mmma")', "E0680", "those known here are: mma, dot"),
        ('C.tensor_tile("mma", "i=vi")', "E0685", "those that do are: i=vi, j=vj, k=vk; i=vj, j=vi, k=vk"),
        ('C.tensor_tile("dot", "i=vi")', "E0685", "none does: ask `C.tensorizable(…)` first"),
    ],
)
def test_what_is_no_mapping(question: str, code: str, help: str) -> None:
    with pytest.raises(ScheduleRefusal) as refusal:
        with_instructions(f"let x = {question}").sample(rng())
    assert refusal.value.refusal.code == code
    assert refusal.value.help == help
    assert refusal.value.span is not None


def test_every_query_is_asked_here() -> None:
    asked = " ".join(q for table in (*ANSWERS.values(), MAPPED) for q in table)
    asked += (ROOT / "tests/graph/test_grouping.py").read_text()  # of nodes
    for table in QUERIES.values():
        for name in (n for n, q in table.items() if not q.step):  # of those: tests/schedule/test_applicable.py
            assert f".{name}" in asked, name


def test_working_sets_follow_tiles() -> None:
    trace = schedule(
        "let [i, j, k] = C.loops",
        "let [i0, i1] = split(i, [_, 4])",
        "let [j0, j1] = split(j, [_, 8])",
        "reorder(i0, j0, k, i1, j1)",
        'annotate(root, "tile", C.working_set(j0))',
        'annotate(root, "step", C.working_set(k))',
    ).sample(rng())
    assert dict(trace.program.annotations) == {"tile": 4 * (4 * 24 + 24 * 8 + 4 * 8), "step": 4 * (4 + 8 + 4 * 8)}


WINDOWS = """
program p(X: f32[40, 8], Y: f32[8]) {
    for i in 8, c in 8, k in 3 {
        block Y {
            spatial vi in 8 = i
            reduce vc in 8 = c
            reduce vk in 3 = k
            init { Y[vi] = 0.0 }
            Y[vi] = Y[vi] + X[WHERE, vc]OTHER
        }
    }
}
"""


@pytest.mark.parametrize(
    ("where", "other", "loops", "straight"),
    [
        ("vi + vk", "", "ic", True),
        ("vi + vk", "", "kc", True),
        ("vi + vk", "", "ik", False),  # both move the first dimension
        ("vi * 2 + vk", "", "ic", False),
        ("vi * 2 + vk", "", "kc", True),
        ("39 - vi", "", "ic", False),
        ("vi / 2 + vk", "", "ic", False),
        ("vi", " * X[vi + 1, vc]", "ic", False),  # two reads
    ],
)
def test_what_loops_read_as_a_box(where: str, other: str, loops: str, straight: bool) -> None:
    p = parse_program(Source("p.tsched", WINDOWS.replace("WHERE", where).replace("OTHER", other)))
    assert is_straight(p, BlockRef("Y"), BufferRef("X"), tuple(map(LoopRef, loops))) == straight


OPEN = """
program open(A: f32[M, 8], C: f32[M, 8]) {
    for i in M, j in 8 {
        block C { spatial vi in M = i; spatial vj in 8 = j
            C[vi, vj] = A[vi, vj]
        }
    }
}
"""


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ("C.loops[0].extent", "E0383"),
        ("C.loops[0].largest_divisor(4)", "E0383"),
        ("C.loops[0].tiles(4)", "E0383"),
        ("C.extents", "E0384"),
        ("A.shape", "E0382"),
        ("A.bytes", "E0382"),
        ("C.loops[0].is_open and A.is_open and not C.loops[1].is_open", ""),
        ("C.loops[0].nominal_extent == 1024 and A.nominal_shape == [1024, 8]", ""),
        ("C.nominal_region(A, C.loops[0]) == [1, 8]", ""),
        ("not C.is_region_open(A, C.loops[0])", ""),
        ("C.loops[1].extent == 8 and C.working_set(C.loops[0]) == 64", ""),
    ],
)
def test_sizes_that_are_open_are_refused_and_can_be_asked_for(question: str, code: str) -> None:
    closed = schedule(f'annotate(root, "answer", {question})')
    s = replace(closed, program=parse_program(Source("open", OPEN)))
    if not code:
        assert dict(s.sample(rng()).program.annotations) == {"answer": True}
        return
    with pytest.raises(ScheduleRefusal) as refusal:
        s.sample(rng())
    assert refusal.value.refusal.code == code
    assert refusal.value.span is not None


def test_regions_of_open_size_can_be_asked_for() -> None:
    source = OPEN.replace("i in M, j in 8", "j in 8, i in M")
    closed = schedule('annotate(root, "answer", C.is_region_open(A, C.loops[0]))')
    s = replace(closed, program=parse_program(Source("open", source)))
    assert dict(s.sample(rng()).program.annotations) == {"answer": True}


def test_a_loop_that_is_not_around_the_block_has_no_working_set() -> None:
    with pytest.raises(ScheduleRefusal) as refusal:
        schedule("let x = Y.working_set(E.loops[0])", compute="chain").sample(rng())
    assert refusal.value.refusal.code == "E0381"
    assert "the loops around it are" in refusal.value.help


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ("C.working_set", "E0525"),
        ("C.working_set(3)", "E0543"),
        ("C.working_set()", "E0542"),
        ("C.loops()", "E0525"),
        ("C.loops.extent", "E0525"),
        ("target.has(3)", "E0543"),
        ('"S".rfind("S", after="R")', "E0525"),
        ('"S".count()', "E0525"),
        ("reversed([1], 2)", "E0530"),
        ('interleave("S", [[1]])', "E0530"),
        ("sum(C.loops)", "E0530"),
    ],
)
def test_questions_that_are_asked_wrongly(question: str, code: str) -> None:
    with pytest.raises(TschedError) as problem:
        schedule(f"let x = {question}").sample(rng())
    (d,) = problem.value.diagnostics
    assert d.code == code


def test_a_query_is_declared_once() -> None:
    known = QUERIES[BlockRef]["name"].function
    with pytest.raises(ValueError, match="declared twice"):
        query(known)
