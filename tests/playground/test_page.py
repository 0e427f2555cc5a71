"""The page in a browser: an error is typed, seen and mended, a slider is moved, and the program changes."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlparse

import pytest

from tensorc_dsl.faces.playground.server import Playground
from tensorc_dsl.syntax.highlight.rules import Class
from tests.editors.oracle import CORPUS, LIBRARY, differences
from tests.page import browser
from tests.playground.waiting import until

pytestmark = pytest.mark.skipif(browser.FOUND is None, reason=f"no browser: none of {', '.join(browser.NAMES)}")

TEXT = "String(playground.text.state.doc)"
PROGRAM = "playground.state.shown.text"
STATUS = "document.getElementById('status').textContent"


def an_error_is_typed_seen_and_mended(page: browser.Page) -> None:
    before = page.evaluate(PROGRAM)
    page.evaluate(
        f"playground.text.focus(), playground.text.dispatch({{ selection: {{ anchor: {TEXT}.indexOf('unroll(') + 6 }} }})"
    )
    page.call("Input.insertText", text="l")
    until(page, "document.querySelectorAll('#problems li').length")
    assert page.evaluate("document.querySelector('#problems li').textContent").startswith(
        "21:5E0223there is no primitive"
    )
    until(page, "document.querySelector('#editor .cm-lintRange-error')")
    assert page.evaluate("document.querySelector('#editor .cm-lintRange-error').textContent") == "unrolll"
    assert "last text without errors" in page.evaluate(STATUS) and page.evaluate(PROGRAM) == before
    assert page.evaluate("document.querySelector('#problems .fix').textContent") == "Change to `unroll`"
    page.evaluate("document.querySelector('#problems .fix').click()")
    until(page, "document.getElementById('problems-title').textContent === 'Nothing is wrong'")
    assert "unroll(i1)" in page.evaluate(TEXT) and "unrolll" not in page.evaluate(TEXT)


def a_slider_redraws_and_the_program_changes(page: browser.Page) -> None:
    slider = "document.querySelector('#draws .slider input')"
    assert page.evaluate(f"{slider}.getAttribute('aria-valuetext')") == "[8, 12]"
    assert "for j_0 in 8 " in page.evaluate(PROGRAM)
    page.evaluate(f"{slider}.focus()")
    page.press("ArrowRight")
    until(page, f"{PROGRAM}.includes('for j_0 in 6 ')")
    assert page.evaluate(f"{slider}.getAttribute('aria-valuetext')") == "[6, 16]"
    assert page.evaluate("playground.state.decisions.rows") == "[8, 8]"
    page.evaluate("document.querySelector('#draws input[type=radio][value=\"[16, 4]\"]').click()")
    until(page, f"{PROGRAM}.includes('i_0 in 16 ')")
    assert "for j_0 in 6 " in page.evaluate(PROGRAM)
    page.evaluate("document.querySelector('#draws .slider .pin').click()")
    until(page, f"{TEXT}.includes('max_innermost=32) := [6, 16]') && document.querySelector('#draws .row.pinned')")
    assert page.evaluate("document.querySelector('#draws .row.pinned output').textContent") == "[6, 16]"


def each_step_and_each_stage_can_be_seen(page: browser.Page) -> None:
    page.evaluate("document.getElementById('step').focus()")
    page.press("Home")
    until(page, "document.getElementById('step-text').textContent === 'before the first step'")
    assert "for i in 64, j in 96, k in 64" in page.evaluate(PROGRAM)
    page.evaluate("document.getElementById('forth').click()")
    until(page, "document.querySelector('#editor .marked') && document.querySelector('#program .marked')")
    assert "split(i, rows)" in page.evaluate("document.querySelector('#editor .marked').textContent")
    assert "i_0 in 16" in page.evaluate("document.querySelector('#program .marked').textContent")
    for stage, word in (("loops", "for"), ("llvm", "define"), ("asm", "ret")):
        page.evaluate(f"document.querySelector('[data-name={stage}]').click()")
        until(
            page, f"{PROGRAM}.includes('{word}') && document.querySelector('[data-name={stage}][aria-selected=true]')"
        )
    page.evaluate("document.querySelector('[data-name=program]').click()")
    until(page, f"{PROGRAM}.startsWith('program')")


def what_can_stand_and_what_a_word_is_are_told(page: browser.Page) -> None:
    before = page.evaluate(TEXT)
    page.evaluate(
        f"playground.text.focus(), playground.text.dispatch({{ selection: {{ anchor: {TEXT}.indexOf('parallel(i0)') }} }})"
    )
    page.call("Input.insertText", text="vec")
    until(page, "document.querySelector('.cm-tooltip-autocomplete li[aria-selected]')")
    assert page.evaluate("document.querySelector('.cm-tooltip-autocomplete li').textContent").startswith("vectorize")
    page.evaluate(
        "new Promise((done) => setTimeout(done, 150))"
    )  # a key so soon is not meant for what has just appeared
    page.press("Enter")
    until(page, f"{TEXT}.includes('vectorizeparallel(i0)')")
    whole = f"{{ from: 0, to: {TEXT}.length, insert: {json.dumps(before)} }}"
    page.evaluate(f"playground.text.dispatch({{ changes: {whole} }})")
    until(page, "document.getElementById('problems-title').textContent === 'Nothing is wrong'")
    page.evaluate(f"playground.text.dispatch({{ selection: {{ anchor: {TEXT}.indexOf('depth ~') }} }})")
    page.press("F1")
    until(page, "document.querySelector('.cm-tooltip .about')")
    about = page.evaluate("document.querySelector('.cm-tooltip .about').textContent")
    assert "8 in the best record of small (1.00 µs)" in about
    page.press("Escape")
    until(page, "!document.querySelector('.cm-tooltip .about')")


def any_value_can_be_typed(page: browser.Page) -> None:
    typed = "document.querySelector('#draws .slider input[type=text]')"
    shown = "playground.state.shown.draws.find((d) => d.name === 'columns').value"
    for value, kept in (("[3, 32]", "[3, 32]"), ("[3", "[3, 32]"), ("[12, 8]", "[12, 8]")):
        until(page, "!document.body.classList.contains('busy')")
        page.evaluate(f"{typed}.value = {json.dumps(value)}, {typed}.dispatchEvent(new Event('change'))")
        wanted = json.dumps(kept)
        until(page, f"!document.body.classList.contains('busy') && {shown} === {wanted} && {typed}.value === {wanted}")
        assert page.evaluate("playground.state.decisions.columns") == kept
    assert page.evaluate("document.querySelector('#draws .slider input').title") == "all 10 values"


def the_decisions_of_the_best_record_are_taken(page: browser.Page) -> None:
    assert "1.00 µs" in page.evaluate("document.getElementById('best').title")
    page.evaluate("[...document.querySelectorAll('#draws .best')][0].click()")
    until(page, "playground.state.decisions.rows === '[32, 2]' && !document.body.classList.contains('busy')")
    assert page.evaluate("playground.state.decisions.columns") == "[12, 8]"
    page.evaluate("document.getElementById('best').click()")
    until(page, f"{PROGRAM}.includes('for j_0 in 3 ') && {PROGRAM}.includes('for i_0 in 32 ')")
    page.evaluate("document.getElementById('reset').click()")
    until(page, f"{PROGRAM}.includes('for j_0 in 8 ')")


def a_refused_step_is_explained(page: browser.Page) -> None:
    page.evaluate(
        f"(at => playground.text.dispatch({{ changes: {{ from: at, to: at + 13, insert: 'vectorize(k1)' }} }}))"
        f"({TEXT}.indexOf('vectorize(j1)'))"
    )
    until(page, "!document.getElementById('problem').hidden")
    assert "vectorize(k1)" in page.evaluate("document.getElementById('problem').textContent")
    assert "ends early" in page.evaluate(STATUS)
    assert page.evaluate("document.querySelector('#editor .refused').textContent.trim()") == "vectorize(k1)"


def the_page_says_that_it_waits(page: browser.Page) -> None:
    """It waits for what is wrong in the text and for the program: the end of one is not the end of the other."""
    page.evaluate(
        "window.seen = [], new MutationObserver(() => seen.push(document.body.classList.contains('busy')))"
        ".observe(document.getElementById('problems-title'), { childList: true })"
    )
    page.evaluate(
        "window.ask0 = window.fetch, window.fetch = (...x) => ask0(...x).then(async (r) => {"
        "if (JSON.parse(x[1].body).type === 'Show') await new Promise((d) => setTimeout(d, 400)); return r; })"
    )
    page.evaluate("playground.text.dispatch({ changes: { from: 0, insert: '// slow\\n' } })")
    until(page, "seen.length")
    page.evaluate("new Promise((done) => setTimeout(done, 100))")
    assert page.evaluate("document.body.classList.contains('busy')")
    until(page, "!document.body.classList.contains('busy')")
    page.evaluate("window.fetch = ask0")


def the_program_of_another_question_is_pale(page: browser.Page) -> None:
    page.evaluate("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
    page.evaluate("document.getElementById('redraw').click()")
    until(page, "document.getElementById('status').classList.contains('failure')")
    assert page.evaluate(STATUS) == "the playground has ended: copy the text, and start `tensorc-dsl serve` again"
    assert page.evaluate("document.body.classList.contains('stale')")
    page.evaluate("window.fetch = ask0")
    page.evaluate("document.getElementById('reset').click()")
    until(page, "!document.body.classList.contains('stale')")
    assert not page.evaluate("document.getElementById('status').classList.contains('failure')")


def it_fits_every_window(page: browser.Page) -> None:
    for width in (1280, 820, 400):
        for dark in (False, True):
            page.look(width, dark=dark)
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def each_word_has_its_class(page: browser.Page) -> None:
    """The words of all highlighters' texts, and what is in the page for them."""
    for path in (*CORPUS, *LIBRARY):
        text = path.read_text(encoding="utf-8")
        classes: list[Class | None] = []
        found = json.loads(page.evaluate(f"JSON.stringify(playground.words({json.dumps(text)}))"))
        for line, words in zip(text.split("\n"), found, strict=True):
            units = line.encode("utf-16-le")
            start = 0
            for end, name in words:
                part = units[2 * start : 2 * end].decode("utf-16-le")
                classes += [None if name is None else Class(name)] * len(part)
                start = end
            classes.append(None)
        assert differences(text, classes) == [], path
    shown = (
        "[...new Set([...document.querySelectorAll('#editor .cm-line span')].map(x => x.className))].sort().join(' ')"
    )
    assert {"t-keyword", "t-type", "t-draw", "t-primitive", "t-number", "t-doc"} <= {*page.evaluate(shown).split()}


def test_the_page_in_a_browser(playground: Playground, tmp_path: Path) -> None:
    """A start of a browser takes seconds, so each part goes on where the last one has left the page."""
    with browser.browser(tmp_path) as page:
        page.visit(playground.address)
        until(page, "playground.state.shown !== null")
        an_error_is_typed_seen_and_mended(page)
        what_can_stand_and_what_a_word_is_are_told(page)
        any_value_can_be_typed(page)
        the_decisions_of_the_best_record_are_taken(page)
        a_slider_redraws_and_the_program_changes(page)
        each_step_and_each_stage_can_be_seen(page)
        a_refused_step_is_explained(page)
        the_page_says_that_it_waits(page)
        the_program_of_another_question_is_pale(page)
        it_fits_every_window(page)
        each_word_has_its_class(page)
        assert page.said == []
        own = urlparse(playground.address)
        for address in page.asked:
            found = urlparse(address)
            assert found.scheme == "data" or (found.netloc == own.netloc and found.path.startswith(own.path)), address
