"""Patterns of loops and blocks: what is like them, in which order, and what is wrong with one."""

from __future__ import annotations

import random

import pytest

from campaigns.random_programs import random_program
from campaigns.random_steps import random_schedule
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file
from tensorc_dsl.ir.expr import loads
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_expr, format_store
from tensorc_dsl.ir.program import Block, For, Program, Stmt, blocks, walk
from tensorc_dsl.schedule import patterns
from tensorc_dsl.schedule.patterns import found, name_of
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.step import BlockPattern, LoopPattern, ScheduleRefusal
from tests.interp.spaces import rng, schedule

PROGRAM = """
program several(A: f32[M, 8], X: f32[M, 8], Y: f32[M, 8], S: f32[M]) where M in 1..64 {
    buffer T: f32[M, 8]
    parallel for i in M {
        for j in 8 {
            block T { spatial vi in M = i; spatial vj in 8 = j; T[vi, vj] = exp(A[vi, vj] * -1.5) }
        }
        for k in 8 {
            block S { spatial vi in M = i; reduce vk in 8 = k; init { S[vi] = 0.0 }; S[vi] = S[vi] + T[vi, vk] * T[vi, vk] }
        }
        for jo in 2 {
            vectorized for ji in 4 {
                block X {
                    spatial vi in M = i; spatial vj in 8 = jo*4 + ji
                    X[vi, vj] = T[vi, vj] / S[vi] if 0 <= vj < 7 and vi > 0 or not vj == 3 else f32(vj) + f32(1.0)
                }
            }
            block Y { spatial vi in M = i; spatial vj in 8 = jo * 4; Y[vi, vj] = max(T[vi, vj], min(A[vi, 0], 2.0)) }
        }
    }
    for n in M { block last { spatial vn in M = n; S[vn] = -S[vn] } }
}
"""


def several() -> Program:
    return parse_program(Source("several", PROGRAM))


def like(pattern: str, program: Program | None = None) -> str:
    """The names of what is like a pattern."""
    loop = pattern.lstrip().startswith(("for ", "parallel ", "vectorized ", "bound "))
    kind = LoopPattern if loop else BlockPattern
    return " ".join(name_of(s) for s in found((program or several()).body, kind(pattern)))


LIKE = {
    # headers
    "for _ in _": "i j k jo ji n",
    "for i in _": "i",
    "for _ in 8": "j k",
    "for _ in M": "i n",
    "for _ in 3": "",
    "vectorized for _ in _": "ji",
    "parallel for _ in M { … }": "i",
    "bound for _ in _": "",
    # bodies
    "for _ in _ { block _ }": "j k ji n",
    "for _ in _ { for _ in _ }": "",
    "for _ in _, _ in _": "",
    "for _ in _ { for _ in _; block _ }": "jo",
    "for _ in _ { for _ in 4; … }": "jo",
    "for _ in _ { …; block Y }": "i jo",
    "for _ in _ { … block Y … }": "i jo",
    "for _ in _ { ... block X ... block Y ... }": "i jo",
    "for _ in _ { … block Y … block X … }": "",
    "for _ in _ { … block T … for _ in 4 … }": "i",
    "for _ in _ { … for _ in 4; block Y }": "i jo",
    "for _ in _ { … for _ in 8; for _ in 8; … }": "i",
    "for _ in _ { … for _ in 8; for _ in 2 }": "i",
    "for _ in _ { … for _ in 8 { T = _ }; for _ in 2 … }": "",
    "for _ in _ { block _; … }": "j k ji n",
    "for _ in _ { S += _ }": "k",
    "for _ in _ { … S += _ … X = … S … }": "i",
    "for _ in _ { … S += _ … X = … S …; }": "",
    "for _ in _ { … X = … S …; block Y }": "",
    "for _ in _ { for _ in 4 { X = … S … }; block Y }": "jo",
    "for _ in _ { }": "",
    "for _ in _ { for _ in 8; for _ in 8; for _ in 2 { for _ in 4 { block X } block Y } }": None,
    "for _ in _ { for _ in 8; for _ in 8; for _ in 2 { for _ in 4 { block X }; block Y } }": "i",
    # blocks and stores
    "block _": "T S X Y last",
    "block X": "X",
    "block Z": "",
    "block last { S = _ }": "last",
    "block _ { S = _ }": "S last",
    "block _ { S = _; … }": "S last",
    "block _ { S = _; S = _ }": "",
    "block T { S = _ }": "",
    "_ = _": "T S X Y last",
    "_[_] = _": "S last",
    "_[_, _] = _": "T X Y",
    "S[vi] = _": "S",
    "S += _": "S",
    "_ += T * T": "S",
    "_ += T[vi, vk] * T[_, vk]": "S",
    "S = S + _ * _": "S",
    "_ = … T …": "S X Y",
    "_ = … A …": "T Y",
    "_ = … A[_, 0] …": "Y",
    "S += … T …": "S",
    "S = …": "S last",
    "_ = exp(_)": "T",
    "_ = _(_)": "T",
    "_ = _(_, _)": "Y",
    "_ = … min(_, 2.0) …": "Y",
    "_ = … min(_, 2) …": "Y",
    "_ = … -1.5 …": "T",
    "_ = … 1.5 …": "",
    "S = -S": "last",
    "_ = … vj …": "T X Y",
    "_ = _ if _ else _": "X",
    "_ = … 0 <= vj < 7 …": "X",
    "_ = … _ <= _ < _ …": "X",
    "_ = … not _ == 3 …": "X",
    "_ = … _ > 0 or _ …": "",
    "_ = … (_ and _) or _ …": "X",
    "_ = … f32(1.0) …": "X",
    "_ = … f32(vj) + _ …": "X",
    "_ = … f64(_) …": "",
    "_ = … M …": "",
}  # fmt: skip


@pytest.mark.parametrize("pattern", [p for p, expected in LIKE.items() if expected is not None])
def test_what_is_like_a_pattern(pattern: str) -> None:
    assert like(pattern) == LIKE[pattern]
    assert like(pattern.replace("…", "...").replace("; ", "\n")) == LIKE[pattern]


def full(s: Stmt) -> str:
    """The pattern with all that a statement says."""
    if isinstance(s, Block):
        return f"block {s.name} {{ {'; '.join(map(format_store, s.body))} }}"
    kind = "" if s.kind == "serial" else f"{s.kind} "
    return f"{kind}for {s.var} in {format_expr(s.extent)} {{ {'; '.join(map(full, s.body))} }}"


def looser(s: Stmt) -> list[tuple[str, bool]]:
    """Patterns that a statement is like as well, each with whether its name is in it."""
    if isinstance(s, For):
        inside = [x for _, x in walk(s.body)]
        some = random.Random(s.var).sample(range(len(inside)), min(2, len(inside)))
        deep = [x for n in sorted(some) if isinstance(x := inside[n], Block)]
        gaps = "".join(f"block {b.name}; … " for b in deep)
        return [(f"for {s.var} in _", True), (f"for _ in _ {{ … {gaps}}}", False), (patterns.shown(s), True)]
    (store, *_) = s.body
    out = [(f"block {s.name}", True), (f"{store.buffer} = _", False), (f"_ = {format_expr(store.value)}", False)]
    if store.indices:
        out.append((f"{store.buffer}[{', '.join('_' * len(store.indices))}] = …", False))
    return [*out, *((f"_ = … {format_expr(x)} …", False) for x in loads(store.value))]


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(40))
def test_every_loop_and_block_is_found_by_the_pattern_that_it_prints(seed: int) -> None:
    r = random.Random(seed)
    program, _ = random_schedule(random_program(r)[0], r, 12)
    for _, s in walk(program.body):
        kind = LoopPattern if isinstance(s, For) else BlockPattern
        assert [*found(program.body, kind(full(s)))] == [s], full(s)
        for pattern, is_named in looser(s):
            all_like = [*found(program.body, kind(pattern))]
            assert s in all_like, (pattern, full(s))
            assert len(all_like) == 1 or not is_named, pattern


def answer(question: str, *before: str, compute: str = "matmul") -> object:
    trace = schedule(*before, f'annotate(root, "answer", {question})', compute=compute).sample(rng())
    return dict(trace.program.annotations)["answer"]


SPLIT = "let [i0, i1] = split(C.loops[0], [_, 8])"


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ('root.find_loop("for j in _").extent', 48),
        ('root.find_loop("for _ in _").name', "i_0"),
        ('root.find_loop("for _ in 8").name', "i_1"),
        ('len(root.find_loops("for i in _"))', 0),
        ('len(root.find_loops("for _ in _ { … C += A * B … }"))', 4),
        ('root.find_loops("for _ in _ { … C += A * B … }")[-1].name', "k"),
        ('i1.find_loop("for _ in _").name', "j"),
        ('len(i1.find_loops("for i_1 in _"))', 0),
        ('root.find_block("C += _").loops[1].name', "i_1"),
        ('i0.find_block(pattern="block C").name + i0.find_blocks("_ = … B …")[0].name', "CC"),
        ('root.find_loop("for " + i1.name + " in _").extent', 8),
        ('len(root.find_loop("for i_0 in 4").find_loops("for _ in _"))', 3),
    ],
)
def test_a_schedule_asks(question: str, expected: object) -> None:
    assert answer(question, SPLIT) == expected


def test_what_is_found_can_be_scheduled() -> None:
    by_pattern = schedule(
        'let l = root.find_loop("for i in _ { … E = exp(_) … }"); let e = root.find_block("_ = … E …")',
        "parallel(l); vectorize(e.loops[-1])",
        'let [_, inner] = split(root.find_loop("for _ in 48"), [_, 4]); unroll(inner)',
        compute="chain",
    )
    by_name = schedule(
        "parallel(E.loops[0]); vectorize(Y.loops[-1]); let [_, inner] = split(E.loops[1], [_, 4]); unroll(inner)",
        compute="chain",
    )
    assert by_pattern.sample(rng()).program == by_name.sample(rng()).program
    assert "find" not in by_pattern.sample(rng()).text


@pytest.mark.parametrize(
    ("question", "message", "help"),
    [
        (
            'root.find_loop("for x in _")',
            "nothing here is like `for x in _`",
            "the loops here are: `for i in 32`, `for j in 48`, `for k in 24`",
        ),
        ('C.loops[2].find_loop("for _ in _")', "nothing here is like `for _ in _`", "there are no loops here"),
        (
            'root.find_block("C = exp(_)")',
            "nothing here is like `C = exp(_)`",
            "the blocks here are: `block C { C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj] }`",
        ),
    ],
)
def test_one_that_is_not_there_is_refused(question: str, message: str, help: str) -> None:
    with pytest.raises(ScheduleRefusal) as refusal:
        schedule(f"let x = {question}").sample(rng())
    assert (refusal.value.refusal.code, refusal.value.message, refusal.value.help) == ("E0695", message, help)
    assert refusal.value.span is not None
    assert refusal.value.span.text.startswith('"')


WRONG = {
    # method, pattern: code, place in the file, message
    ("loop", "for i"): ("E0263", "", "`in` and an extent, or `in _`, is expected in this pattern"),
    ("loop", "for in in _"): ("E0263", "in", "the name of a loop, or `_`, is expected in this pattern"),
    ("loop", "for i in _: _"): ("E0263", ":", "a body in braces, `{ … }`, is expected in this pattern"),
    ("loop", "for i in { … }"): ("E0263", "{", "an extent, or `_`, is expected in this pattern"),
    ("loop", "for i in _ { block C"): ("E0263", "", "`;` or `}` is expected in this pattern"),
    ("loop", "for i in _ { C = _ D = _ }"): (
        "E0263", "D", "an operator, or the end of the expression, is expected in this pattern",
    ),
    ("loop", "for i in _ }"): ("E0263", "}", "the end is expected in this pattern"),
    ("loop", "parallel for i in _, j in _"): ("E0263", ",", "a body in braces, `{ … }`, is expected in this pattern"),
    ("loop", "for i in 3 + { … }"): ("E0263", "{", "an expression is expected in this pattern"),
    ("loop", "for i in (3 { … }"): ("E0101", "{", "expected `)` or `,`; found `{`"),
    ("loop", "for i in _)"): ("E0263", ")", "a body in braces, `{ … }`, is expected in this pattern"),
    ("loop", "C = _"): ("E0263", "C = _", "this is a pattern of a block, and a loop is looked for"),
    ("block", "for i in _"): ("E0263", "for i in _", "this is a pattern of a loop, and a block is looked for"),
    ("block", ""): ("E0263", "", "a loop, a block or a store is expected in this pattern"),
    ("block", "…"): ("E0263", "…", "a loop, a block or a store is expected in this pattern"),
    ("block", "C"): ("E0263", "", "`=` or `+=` is expected in this pattern"),
    ("block", "C ="): ("E0263", "", "a value, or `_`, is expected in this pattern"),
    ("block", "C = A +"): ("E0263", "", "an expression is expected in this pattern"),
    ("block", "C = (A"): ("E0263", "", "a closing bracket is expected in this pattern"),
    ("block", "C = … A"): ("E0263", "", "`…` behind the value too is expected in this pattern"),
    ("block", "C = A …"): ("E0263", "…", "the end is expected in this pattern"),
    ("block", "A + B = _"): ("E0263", "A + B", "an element, `C[_, _]`, `C` or `_`, is expected in this pattern"),
    ("block", "C = A[_, * 2]"): ("E0101", "*", "expected an expression or `]`; found `*`"),
    ("block", "C = $"): ("E0102", "$", "`$` has no meaning here"),
    ("block", "C = exq(_)"): ("E0263", "exq", "programs have no function `exq`, so nothing is like it"),
    ("block", "C = sum[k] A"): ("E0263", "sum[k] A", "programs have no such expression, so nothing is like it"),
    ("block", "C = A.x"): ("E0263", "A.x", "programs have no such expression, so nothing is like it"),
    ("block", "block C { for i in _ }"): ("E0263", "for", "a loop, a block or a store is expected in this pattern"),
    ("block", "C = _; C = _"): ("E0263", "C", "the end is expected in this pattern"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "pattern"), WRONG)
def test_a_wrong_pattern_is_an_error_at_its_place(kind: str, pattern: str) -> None:
    code, place, message = WRONG[kind, pattern]
    head = "compute mm(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }\n"
    text = (
        f'{head}schedule s for mm {{\n    let x = root.find_{kind}("{pattern}")\n    annotate(root, "x", x.name)\n}}\n'
    )
    (d,) = load_file(Source("f.tsched", text)).diagnostics
    assert (d.code, d.message) == (code, message)
    assert d.span is not None
    assert d.span.text == place
    begin = text.index(f'("{pattern}"') + 2
    assert begin <= d.span.start <= begin + len(pattern)
    assert d.notes, "a repair"
    # A pattern that is no literal has the same error, at the call.
    with pytest.raises(TschedError) as problem:
        schedule(f'let p = "{pattern}"', f"let x = root.find_{kind}(p)").sample(rng())
    (later,) = problem.value.diagnostics
    assert (later.code, later.message) == (code, message)
    assert later.span is not None
    assert later.span.text == f"root.find_{kind}(p)"
    assert f"of `{pattern}`" in later.notes[0].text


def test_a_pattern_with_escapes_is_checked_as_a_whole() -> None:
    head = "compute c(A: f32[M]) -> B: f32[M] { B[i] = A[i] }\nschedule s for c { "
    assert (
        load_file(Source("f.tsched", head + 'parallel(root.find_loop("for i in _ {\\n block B\\n }")) }\n')).diagnostics
        == ()
    )
    (d,) = load_file(Source("f.tsched", head + 'parallel(root.find_loop("for i in _\\n in")) }\n')).diagnostics
    assert d.span is not None
    assert (d.code, d.span.text) == ("E0263", '"for i in _\\n in"')


def test_no_text_is_more_than_an_error() -> None:
    r = random.Random(5)
    words = [
        "for",
        "in",
        "_",
        "…",
        "...",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "=",
        "+=",
        "block",
        "C",
        ";",
        ",",
        "+",
        "1",
        "if",
        "else",
    ]
    words += [
        "\n",
        "//",
        "///",
        '"',
        "\\",
        "program",
        "scan",
        "step",
        "sum",
        "reduce",
        "é",
        "parallel",
        "bound",
        ":",
        "1.5",
        "<",
        "not",
    ]
    program, read = several(), 0
    for _ in range(4000):
        text = " ".join(r.choices(words, k=r.randrange(12)))
        for kind in (LoopPattern, BlockPattern):
            try:
                assert len([*found(program.body, kind(text))]) <= 6
                read += 1
            except TschedError:
                pass
    assert read > 3
    for deep in (
        "for _ in _ { " * 5000,
        "for _ in _" + ", _ in _" * 20_000,
        "C = " + "(" * 5000,
        "C = " + "-" * 5000 + "A",
        "C = " + "A + " * 5000 + "A",
    ):
        with pytest.raises(TschedError):
            found(program.body, LoopPattern(deep))


def test_the_work_of_a_pattern_with_many_gaps_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "".join(f"for i{n} in 4 {{ block b{n} {{ spatial v in 4 = i{n}; Y[v] = X[v] }} }}\n" for n in range(40))
    program = parse_program(Source("p", f"program p(X: f32[4], Y: f32[4]) {{ for o in 1 {{ {body} }} }}"))
    compared, matches = 0, patterns.matches

    def counted(p: object, s: object) -> bool:
        nonlocal compared
        compared += 1
        return matches(p, s)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(patterns, "matches", counted)
    assert like("for o in _ { " + "… _ = _ " * 20 + "… Y = exp(_) }", program) == ""
    assert compared < 20_000


def test_all_four_are_asked_of_programs_and_loops() -> None:
    for table in QUERIES.values():
        own = {name for name in table if name.startswith("find_")}
        assert own in (set(), {"find_loop", "find_loops", "find_block", "find_blocks"})
    assert len(blocks(several())) == 5
