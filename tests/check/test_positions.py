"""The name at any position of a file, and its definition."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensorc_dsl.schedule.primitives
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.positions import Entry, Files, Reference, Written, name_at, references
from tensorc_dsl.check.scope import CheckedFile, load_file
from tests.check.test_scope import load
from tests.syntax.test_words import FILES, text, words

assert tensorc_dsl.schedule.primitives


def there(checked: CheckedFile, place: str) -> Reference | None:
    """What stands at `|` in a part of the file's text."""
    before, after = place.split("|")
    assert checked.source.text.count(before + after) == 1, place
    return name_at(checked, checked.source.text.index(before + after) + len(before))


def said(checked: CheckedFile, place: str) -> str:
    """The definition at `|`, in few words: `line:column`, with the file's name where it is another one."""
    found = there(checked, place)
    match found and found.definition:
        case None:
            return "nothing"
        case Written(spans):
            sources = {s.source.name for s in spans} - {checked.source.name}
            places = [":".join(map(str, s.source.line_column(s.start))) for s in spans]
            return " ".join([*sorted(sources), *places])
        case Entry(kind=kind, name=name):
            return f"{kind} {name}"
        case Files(sources):
            return " ".join(s.name for s in sources)


@pytest.mark.corpus
@pytest.mark.parametrize("file", FILES, ids=lambda f: "-".join(f.with_suffix("").parts[-3:]))
def test_every_name_of_the_library_and_the_examples_is_defined(file: Path) -> None:
    checked = load_file(Source.read(file))
    assert checked.errors == ()
    found = {(r.span.start, r.span.end): r for r in references(checked)}
    # The first target of a stage is its name, too.
    for word in {w.span: w for w in words(checked.file.items)}.values():
        if text(word) == "_":
            assert (word.span.start, word.span.end) not in found
            continue
        reference = found.pop((word.span.start, word.span.end), None)
        assert reference is not None, (text(word), checked.source.line_column(word.span.start))
        assert reference.name == text(word)
        match reference.definition:
            case Written(spans=spans):
                assert {s.text for s in spans} == {text(word)}
            case Entry(name=name):
                assert name.rpartition(".")[2] == text(word)
            case Files(sources=sources):
                assert sources
    assert not found  # no place that is no name


LIB = "module cut(b: Block, width: int = 4) { split(b.loops[0], [_, width]) }\nspace all for llvm { cut }\n"
MAIN = """\
use lib.{cut, all}
compute mm(A: f32[M, K], B: f32[K, N]; scale: float = 1.0) -> C: f32[M, N] where MK = M * K {
    let T[i, j] = sum[k] A[i, k] * B[k, j]
    C[i, j] = max(T[i, j], f32(MK)) * scale
}
compute twice(A: f32[M, M]) -> C: f32[M, M] { C = mm(A, A, scale=2.0) }
module tile(b: Block, n = 8) when b.is_injective {
    let l = b.loops[0]
    let parts ~ sample_perfect_tile(l, parts=2)
    let [outer, inner] = split(l, parts)
    either { let last = inner } or { let last = outer }
    for last in [last] { unroll(last) }
    transform_layout(b.writes[0], (x, y) -> (y, x))
    cut(b, width=n)
}
target mine = llvm(cores=4)
space s for mine { tile(n=2); all }
schedule by_hand for mm { parallel(T.loops[0]); vectorize(C.loops[1]) }
task small = mm(M=4, N=4, K=1..8, scale=2.0) with by_hand
task large = mm(M=64, N=4, K=8) with s
"""


@pytest.mark.parametrize(
    ("place", "definition"),
    [
        ("use |lib", "lib.tsched"),
        ("{|cut, all", "lib.tsched 1:8"),
        ("cut, |all}", "lib.tsched 2:7"),
        ("compute |mm", "2:9"),
        ("A: f32[|M, K", "2:19"),
        ("B: f32[|K, N", "2:22"),
        ("where |MK", "2:82"),
        ("|sum[k]", "reducer sum"),
        ("* B[|k, j]", "3:23"),
        ("|B[k, j]", "2:26"),
        ("|max(T", "function max"),
        ("max(|T[", "3:9"),
        ("|f32(MK)", "type f32"),
        ("|* scale\n", "nothing"),
        ("* |scale\n", "2:40"),
        ("= |mm(A, A", "2:9"),
        ("A, |scale=2.0) }", "2:40"),
        ("tile(b: |Block, n", "type Block"),
        ("when |b.is", "7:13"),
        ("b.|is_injective", "query is_injective"),
        ("~ |sample_perfect_tile", "draw sample_perfect_tile"),
        ("l, |parts=2", "parameter sample_perfect_tile.parts"),
        ("= |split(l", "primitive split"),
        ("split(|l, parts", "8:9"),
        ("split(l, |parts)", "9:9"),
        ("= |inner }", "10:17"),
        ("for |last", "12:9"),
        ("[|last]", "11:18 11:42"),
        ("unroll(|last)", "12:9"),
        ("-> (|y, x", "13:39"),
        ("    |cut(b", "lib.tsched 1:8"),
        ("cut(b, |width", "lib.tsched 1:22"),
        ("width=|n)", "7:23"),
        ("= |llvm(cores", "target llvm"),
        ("(|cores=4", "fact cores"),
        ("for |mine {", "16:8"),
        ("{ |tile(n=2)", "7:8"),
        ("tile(|n=2)", "7:23"),
        ("; |all }", "lib.tsched 2:7"),
        ("by_hand for |mm", "2:9"),
        ("parallel(|T.", "3:9"),
        ("vectorize(|C.", "2:63"),
        ("small = |mm", "2:9"),
        ("small = mm(|M", "2:19"),
        ("K=1..8, |scale", "2:40"),
        ("with |by_hand", "18:10"),
        ("with |s\n", "17:7"),
        ("task| small", "nothing"),
        ("M=|64", "nothing"),
        ("with s|\n", "nothing"),
    ],
)  # fmt: skip
def test_a_position_says_where_its_name_is_defined(place: str, definition: str) -> None:
    checked = load(MAIN, lib=LIB)
    assert [d.message for d in checked.errors] == []
    assert said(checked, place) == definition


def test_a_name_ends_where_its_text_does() -> None:
    checked = load("module m(block: Block) { parallel(block.loops[0]) }")
    start = checked.source.text.index("block.loops")
    assert [r and r.name for r in (name_at(checked, start + n) for n in (-1, 0, 4, 5, 6))] == [
        None, "block", "block", None, "loops",
    ]  # fmt: skip
    assert name_at(checked, -1) is None and name_at(checked, 10**6) is None


def test_the_references_of_a_definition_are_what_a_rename_changes() -> None:
    checked = load("module m(b: Block) { let l = b.loops[0]; for l in [l] { unroll(l) }; parallel(l) }")
    outer, inner = (there(checked, p) for p in ("let |l", "for |l"))
    assert outer and inner
    places = {
        d: [r.span.start for r in references(checked) if r.definition == d]
        for d in (outer.definition, inner.definition)
    }
    source = checked.source.text
    assert places[outer.definition] == [source.index("l = b"), source.index("l] {"), source.rindex("l) }")]
    assert places[inner.definition] == [source.index("l in"), source.index("l) }")]


def test_the_good_items_of_a_broken_file_answer() -> None:
    main = "use lib.{cut}\nmodule a(b: Block) { cut(b); lost(b) }\nmodule lost(b: Block) {\nspace s for llvm { a }"
    checked = load(main, lib=LIB)
    assert [d.code for d in checked.errors] == ["E0101"]
    assert said(checked, "{ |cut(b)") == "lib.tsched 1:8"
    assert said(checked, "; |lost(b)") == "nothing"
    assert said(checked, "llvm { |a }") == "2:8"


def test_a_program_has_scopes() -> None:
    checked = load(
        "program p(A: f32[M], C: f32[M]) where M in 1..8 {\n"
        "    for i in M { block b { spatial v in M = i; C[v] = A[v] } }\n"
        "}\n"
    )
    assert checked.errors == ()
    places = [said(checked, p) for p in ("where |M", "M = |i;", "; |C[v]", "C[|v]", "A[|v]", "|A[v]")]
    assert places == ["1:18", "2:9", "1:22", "2:36", "2:36", "1:11"]


def test_an_instruction_has_operands_indices_and_places() -> None:
    checked = load(
        "intrinsic dot desc (A: f32[4], C: f32[1]) { C[i] += sum[k] A[k] }\n",
    )
    assert [said(checked, p) for p in ("{ |C[i]", "C[|i] +=", "|sum[k]", "A[|k] }", "] |A[k]")] == [
        "1:32", "1:47", "reducer sum", "1:57", "1:21",
    ]  # fmt: skip
