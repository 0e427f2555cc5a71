"""`can_<step>` of every primitive: its subject and arguments are the step's, and its answer is what the step does."""

from __future__ import annotations

from inspect import Parameter
from itertools import islice, permutations, product

import pytest

from tensorc_dsl import TschedError, loads
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.kinds import BOOL, NOTHING, OPEN
from tensorc_dsl.ir.program import For, Program, blocks, walk
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.stale import refuse_stale
from tensorc_dsl.schedule.step import (
    PRIMITIVES,
    BlockRef,
    BufferRef,
    IndexMap,
    LoopRef,
    Primitive,
    Ref,
    Result,
    Rewrite,
    ScheduleRefusal,
)
from tests.interp.spaces import rng, schedule

VALUES: dict[object, tuple[object, ...]] = {
    int: (1, 2, 5), str: ("local", "block.x", "x"), float: (0.5,), bool: (True, False),
    tuple[int, ...]: ((0,), (2, 3)), tuple[int | None, ...]: ((None, 2), (3, 7)), tuple[str, ...]: (("vj", "vi"), ("a", "b")),
    IndexMap: (IndexMap((), ()),),
}  # fmt: skip


def programs() -> list[Program]:
    """A product, a chain, a table, and programs that steps have changed."""
    found = [schedule("", compute=c).program for c in ("matmul", "chain", "table")]
    found.append(schedule("compute_at(E, Y.loops[1])", compute="chain").sample(rng()).program)
    tiled = schedule("let [i, j, k] = C.loops", "tile(i, j, [4, 8])", 'annotate(C, "x", 1)').sample(rng()).program
    return [*found, tiled]


def choices(program: Program, p: Parameter) -> list[object]:
    """Some arguments for a parameter."""
    every: list[Ref] = [LoopRef(s.var) for _, s in walk(program.body) if isinstance(s, For)]
    every += [
        *(BlockRef(b.name) for b in blocks(program)),
        *(BufferRef(b.name) for b in (*program.params, *program.buffers)),
    ]
    members = getattr(p.annotation, "__args__", (p.annotation,))
    members = (p.annotation,) if p.annotation in VALUES else members
    out: list[object] = [r for r in every if type(r) in members]
    out += [None] * (type(None) in members)
    return out + [x for m in members if m in VALUES for x in VALUES[m]]


def arguments(program: Program, step: Primitive) -> list[tuple[object, ...]]:
    needed = [p for p in step.signature.parameters.values() if p.default is Parameter.empty]
    if needed[0].kind is Parameter.VAR_POSITIONAL:
        return list(permutations(choices(program, needed[0]), 2))
    return list(islice(product(*(choices(program, p) for p in needed)), 60))


def made(program: Program, step: Primitive, given: tuple[object, ...]) -> bool:
    """Whether the step is made, by its function alone."""
    try:
        refuse_stale(step.name, program, step.function(program, *given).program)
    except ScheduleRefusal:
        return False
    return True


SUBJECTS: dict[object, type] = {type(None): Program, LoopRef: LoopRef, BlockRef: BlockRef, BufferRef: BufferRef}
TAKEN = {
    "annotate", "bind", "cache_read", "cache_write", "compute_inline", "fission", "fuse", "parallel", "pad_einsum", "reorder",
    "reverse_compute_inline", "rfactor", "set_scope", "split", "unannotate", "unroll", "vectorize",
}  # fmt: skip
"""Steps that some of the arguments here must fit."""


@pytest.mark.corpus
@pytest.mark.parametrize("name", [n for n, step in PRIMITIVES.items() if step.signature.parameters])
def test_a_query_says_what_the_step_does(name: str) -> None:
    step = PRIMITIVES[name]
    answers: set[bool] = set()
    for program in programs():
        for subject, *rest in arguments(program, step):
            query = QUERIES[SUBJECTS[type(subject)]][f"can_{name}"]
            answer = query.function(program, *rest) if subject is None else query.function(program, subject, *rest)
            assert answer is made(program, step, (subject, *rest)), (subject, rest)
            answers.add(answer)
    assert True in answers or name not in TAKEN


@pytest.mark.parametrize("name", PRIMITIVES)
def test_the_checker_takes_the_arguments_of_the_step(name: str) -> None:
    step, query = v.STEPS[name], f"can_{name}"
    first, params = (step.params[0], step.params[1:]) if step.positional else (step.rest, step.params)
    if first is None:  # a step of the whole program has nothing to ask it of
        assert not any(query in of for table in (v.METHODS, v.ATTRIBUTES) for of in table.values())
        return
    for kind in (k for k in first.wanted if k not in (OPEN, NOTHING)):
        if params or step.rest:
            asked = v.METHODS[kind][query]
            assert (asked.params, asked.rest, asked.keywords, asked.result) == (params, step.rest, True, BOOL)
        else:
            assert v.ATTRIBUTES[kind][query].kind == BOOL


def answer(*lines: str, compute: str = "matmul") -> object:
    *before, question = lines
    trace = schedule(*before, f'annotate(root, "answer", {question})', compute=compute).sample(rng())
    return dict(trace.program.annotations)["answer"]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("i.can_split([_, 5])", False),
        ("i.can_split(factors=[_, 5], partial=true)", True),
        ('i.can_split([_, 3], partial="cut") and not i.can_split([0])', True),
        ("k.can_reorder([i, j]) and k.can_reorder(j, i)", True),
        ("i.can_reorder(i)", False),
        ("i.can_fuse(j) and not i.can_fuse(k)", True),
        ('root.can_annotate("x", 1) and i.can_annotate(key="x", value=1)', True),
        ('root.can_unannotate("x") or C.can_annotate("", 1)', False),
        ("A.can_transform_layout((...) -> (..., 0))", False),
        ("C.can_transform_block_layout((a, ...) -> (..., a))", True),
        ('C.can_cache_write() and C.can_cache_read(A, scope="local")', True),
        ('C.can_cache_write("nowhere!")', False),
        ("i.can_tile(j, [4, 16]) and not i.can_tile(j, [5, 16])", True),
        ("i.can_tile(j, [5, 7], partial=true)", True),
        ("i.can_tile(C, [4, 16]) if false else i.can_tile([4])", True),
    ],
)
def test_arguments_are_given_as_to_the_step(question: str, expected: bool) -> None:
    assert answer("let [i, j, k] = C.loops", question) is expected


def test_a_question_changes_nothing() -> None:
    asked = schedule("let [i, j, k] = C.loops", "let a = i.can_tile(j, [4, 16]); let b = k.can_reorder(i)").sample(
        rng()
    )
    assert asked.program == schedule("").program
    assert "tile" not in asked.text and "reorder" not in asked.text


@pytest.mark.parametrize("question", ["i.can_parallel", "i.can_split([2, _])", "i.can_tile(j, [4, 4])"])
def test_what_is_no_more_cannot_be_asked(question: str) -> None:
    with pytest.raises(ScheduleRefusal) as refusal:
        schedule("let [i, j, k] = C.loops", "fuse(i, j)", f"let x = {question}").sample(rng())
    assert refusal.value.refusal.code == "E0340"
    assert refusal.value.span is not None


@pytest.mark.parametrize(
    ("question", "checked", "expanded"),
    [
        ("i.can_split(3)", "E0240", "E0543"),
        ("i.can_split()", "E0224", "E0542"),
        ("i.can_split([_, 2], 1)", "E0224", "E0542"),
        ("i.can_split([_, 2], whole=true)", "E0224", "E0542"),
        ("i.can_reorder(C)", "E0240", "E0543"),
        ("i.can_parallel()", "E0226", "E0525"),
        ("C.can_split([_, 2])", "E0226", "E0525"),
        ("i.can_tile(j, 4)", "E0240", "E0543"),
        ("i.can_tile(j, [4, 4, 4])", None, "E0542"),
        ("i.can_tilt(j, [4, 4])", "E0226", "E0525"),
    ],
)
def test_a_wrong_argument_is_a_finding_and_no_answer(question: str, checked: str | None, expanded: str) -> None:
    text = "compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }\n"
    text += f'schedule s for matmul {{ let [i, j, k] = C.loops; let x = {question}; annotate(root, "x", x) }}\n'
    found: list[str] = []
    try:
        loads(text)
    except TschedError as e:
        found = [d.code for d in e.diagnostics]
    assert found == ([checked] if checked else [])
    with pytest.raises(TschedError) as problem:
        schedule("let [i, j, k] = C.loops", f"let x = {question}").sample(rng())
    assert [d.code for d in problem.value.diagnostics] == [expanded]


def test_a_bug_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(program: Program, loop: LoopRef) -> Rewrite[LoopRef]:
        raise ZeroDivisionError(program.name, loop)

    step = PRIMITIVES["unroll"]
    monkeypatch.setitem(PRIMITIVES, "unroll", Primitive("unroll", broken, (), step.signature, step.result, step.doc))
    with pytest.raises(ZeroDivisionError):
        QUERIES[LoopRef]["can_unroll"].function(schedule("").program, LoopRef("i"))


def test_each_question_is_tried_once_for_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    step, tried = PRIMITIVES["split"], list[object]()

    def counted(
        program: Program, loop: LoopRef, factors: tuple[int | None, ...], *, partial: bool | str = False
    ) -> Rewrite[Result]:
        tried.append((factors, partial))
        return step.function(program, loop, factors, partial=partial)

    monkeypatch.setitem(PRIMITIVES, "split", Primitive("split", counted, (), step.signature, step.result, step.doc))
    program, ask = schedule("").program, QUERIES[LoopRef]["can_split"].function
    for _ in range(3):
        assert (ask(program, LoopRef("i"), (None, 5)), ask(program, LoopRef("i"), (None, 4))) == (False, True)
        assert ask(program, LoopRef("i"), (None, 5), partial=True)
    assert len(tried) == 3
