"""The page of a search: what it says, that it asks for nothing, and that nothing foreign becomes part of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tensorc_dsl.base.visible import visible_line
from tensorc_dsl.faces.api import Task
from tensorc_dsl.faces.report.page import DrawPage, Figures, Side, Stage, page
from tensorc_dsl.tuning.insight import Study, study
from tensorc_dsl.tuning.records.trial import Trial
from tests.page import browser
from tests.page.known import figures_of, searched, task_in

EVIL = '</script><script>alert(1)</script><img src="http://evil.example/x" onerror="alert(2)">\'"&\u202e\x1b[31m'
"""A text that would leave its element, load something, and turn what follows around."""

needs_browser = pytest.mark.skipif(browser.FOUND is None, reason=f"no browser: none of {', '.join(browser.NAMES)}")


class Parts(HTMLParser):
    """The elements of a page with their attributes, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    @property
    def shown(self) -> str:
        """All that a reader can see."""
        return " ".join(t for tag, t in self.texts if tag not in ("script", "style"))

    @property
    def data(self) -> dict[str, object]:
        scripts = [t for tag, t in self.texts if tag == "script"]
        return json.loads(scripts[0])


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return task_in(tmp_path_factory.mktemp("task"))


@pytest.fixture(scope="module")
def trials(task: Task) -> list[Trial]:
    return searched(60)


@pytest.fixture(scope="module")
def figures(task: Task, trials: list[Trial]) -> Figures:
    found = study(task.model, task.name, trials)
    assert isinstance(found, Study)
    return figures_of(task, [Side.of("random/0", trials)], DrawPage.of(found))


def test_the_page_is_well_formed_and_has_every_section(figures: Figures) -> None:
    parts = Parts(page(figures))
    assert parts.open == []
    names = [a["id"] for tag, a in parts.elements if tag == "h2"]
    assert names == ["progress", "roofline", "importance", "draws", "parallel", "changes", "winner"]
    assert [tag for tag, _ in parts.elements if tag == "h1"] == ["h1"]


def test_what_was_found_comes_first(figures: Figures) -> None:
    shown = " ".join(Parts(page(figures)).shown.split())
    best = min(t.seconds for t in figures.sides[0].trials if t.seconds is not None)
    assert re.match(r"small: report .* small The fastest schedule takes 1\.64 µs, .* of f32 FMA peak\.", shown)
    assert f"{best * 1e6:.2f} µs" == "1.64 µs"
    assert "On a machine, 1 thread, warm caches" in shown


def test_trials_of_workers_have_the_names_of_their_machines(task: Task, trials: list[Trial]) -> None:
    timed = [replace(t, fingerprint="ab" if n % 3 else "") for n, t in enumerate(trials)]
    side = Side.of("bayes/0", timed, {"ab": EVIL, "cd": "another"})
    assert len(side.machines) == len(side.trials)
    parts = Parts(page(figures_of(task, [side], None)))
    shown = visible_line(EVIL)
    assert (
        f"Trials by machine: {shown} {side.machines.count(EVIL)}, this machine {side.machines.count('')}."
        in parts.shown
    )
    assert json.dumps({"machines": [visible_line(m) for m in side.machines]})[1:-1] in json.dumps(parts.data["sides"])
    assert "by machine" not in page(figures_of(task, [Side.of("bayes/0", timed)], None))


def test_nothing_is_loaded_by_what_the_page_says(figures: Figures) -> None:
    text = page(figures)
    assert not re.search(r"(src|href|action|data)=\"(?!#|data:,\")", text)
    assert "http" not in re.sub(r"Content-Security-Policy|http-equiv", "", text)
    policy = next(a["content"] for t, a in Parts(text).elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'") and "unsafe" not in policy


def test_the_most_important_draw_is_named(figures: Figures) -> None:
    shown = Parts(page(figures)).shown
    assert "Most of all: columns" in shown and "--condition" in shown
    assert "It is drawn in" in shown


def test_failures_are_told_with_their_messages(task: Task, trials: list[Trial]) -> None:
    failed = [replace(t, status="timeout", seconds=None, times=(), message="too slow\nmore") for t in trials[:3]]
    shown = Parts(page(figures_of(task, [Side.of("x", [*failed, *trials[3:]])]))).shown
    crashed = sum(t.seconds is None for t in trials[3:])
    assert f"{3 + crashed} trials failed: " in shown and "3 timeouts" in shown and "too slow" in shown
    assert "it crashed" in shown and "more" not in shown.split("too slow")[1][:6]


def test_two_searches_are_compared(task: Task, trials: list[Trial]) -> None:
    slow = [
        replace(t, seconds=None if t.seconds is None else 2 * t.seconds, program_key=f"b{t.trial}", run="b")
        for t in trials
    ]
    shown = Parts(page(figures_of(task, [Side.of("quick", trials), Side.of("slow", slow)]))).shown
    assert "The best schedule of quick is 2.00 times as fast as that of slow." in shown
    assert re.search(r"It was as fast as the other's best after \d+ trials?\.", shown)
    same = Parts(page(figures_of(task, [Side.of("a", trials), Side.of("b", trials)]))).shown
    assert "equally fast" in same
    none = [replace(t, status="crash", seconds=None) for t in trials]
    assert (
        "One of the two has no valid trial."
        in Parts(page(figures_of(task, [Side.of("a", trials), Side.of("b", none)]))).shown
    )


def test_a_search_without_a_valid_trial_has_a_page(task: Task, trials: list[Trial]) -> None:
    none = [replace(t, status="crash", seconds=None, times=()) for t in trials]
    found = replace(
        figures_of(task, [Side.of("x", none)]), best=None, default=None, roof=None, no_roof="no machine", stages=()
    )
    parts = Parts(page(found))
    assert parts.open == [] and "No trial was valid." in parts.shown and "no machine" in parts.shown


def test_the_last_word_of_the_finalists_is_the_time_of_the_best(task: Task, trials: list[Trial]) -> None:
    best = min((t for t in trials if t.seconds is not None), key=lambda t: t.seconds or 1.0)
    final = replace(best, seconds=9e-7, phase="final")
    side = Side.of("x", [*trials, final])
    assert side.best == final and len(side.trials) == len(trials)
    assert "beside the other finalists, the winner takes 900 ns" in Parts(page(figures_of(task, [side]))).shown.lower()


def test_a_long_text_is_cut(task: Task, trials: list[Trial]) -> None:
    found = replace(figures_of(task, [Side.of("x", trials)]), stages=(Stage("Code", "x" * 300_000),))
    assert "and 100000 more characters" in Parts(page(found)).shown


def hostile(task: Task, trials: list[Trial]) -> Figures:
    """Every text that is not ours is evil."""
    bad = [
        replace(
            t, status="crash" if n % 2 else t.status, seconds=None if n % 2 else t.seconds, message=EVIL, task=EVIL,
            decisions={**t.decisions, EVIL: EVIL, "rows": EVIL},
        )
        for n, t in enumerate(trials)
    ]  # fmt: skip
    found = figures_of(task, [Side.of(EVIL, bad), Side.of(EVIL + "2", bad)])
    return replace(
        found, task=EVIL, machine=EVIL, no_insight=EVIL, command=("tune", EVIL),
        stages=(Stage(EVIL, EVIL), Stage(EVIL, "", EVIL)), roof=replace(found.roof, title=EVIL) if found.roof else None,
    )  # fmt: skip


def test_foreign_text_stays_text(task: Task, trials: list[Trial], figures: Figures) -> None:
    parts = Parts(page(hostile(task, trials)))
    ours = Parts(page(figures))
    assert parts.open == []
    tags = {tag for tag, _ in parts.elements}
    assert tags <= {tag for tag, _ in ours.elements} and "img" not in tags
    assert sum(tag == "script" for tag, _ in parts.elements) == 2
    assert not any(name.startswith("on") for _, attributes in parts.elements for name in attributes)
    assert "\u202e" not in parts.shown and "\x1b" not in parts.shown and "\\u{202E}" in parts.shown
    assert "alert(1)" in parts.shown
    assert parts.data["draws"]


def test_foreign_words_in_what_is_learnt_stay_text(task: Task, trials: list[Trial], figures: Figures) -> None:
    insight = figures.insight
    assert insight is not None
    evil = replace(
        insight,
        importance=tuple(replace(i, name=EVIL) for i in insight.importance[:1]),
        posterior=tuple(replace(l, name=EVIL) for l in insight.posterior[:1]),
        slices=(),
        pins=tuple(replace(p, name=EVIL, decision=EVIL) for p in insight.pins[:1]),
    )
    parts = Parts(page(replace(figures, insight=evil)))
    assert parts.open == [] and "img" not in {tag for tag, _ in parts.elements}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    with browser.browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def check(opened: browser.Page, path: Path, text: str) -> None:
    """The page opens without a message of the console, and without a request for anything but itself."""
    opened.said.clear()
    opened.asked.clear()
    path.write_text(text, encoding="utf-8")
    opened.open(path)
    for width in (1100, 400):
        for dark in (False, True):
            opened.look(width, dark=dark)
            assert opened.evaluate("document.documentElement.scrollWidth") <= width
    for chart in opened.evaluate("[...document.querySelectorAll('.chart')].map(c => c.id)"):
        opened.evaluate(f"document.getElementById('{chart}').focus()")
        for key in ("End", "ArrowLeft", "Home", "ArrowRight", "PageDown"):
            opened.press(key)
    assert opened.said == []
    assert opened.asked in ([path.resolve().as_uri()], [path.resolve().as_uri(), "data:,"])


@needs_browser
def test_it_opens_in_a_browser_offline(shown: browser.Page, tmp_path: Path, figures: Figures) -> None:
    check(shown, tmp_path / "page.html", page(figures))
    said = "document.querySelector('#progress-chart').parentElement.querySelector('.chosen').textContent"
    shown.evaluate("document.querySelector('#progress-chart').focus()")
    shown.press("Home")
    assert shown.evaluate(said).startswith("trial 1: ") and "columns = " in shown.evaluate(said)
    shown.press("ArrowRight")
    assert shown.evaluate(said).startswith("trial 2: ")
    shown.evaluate("(s => { s.value = 50; s.dispatchEvent(new Event('input')); })(document.getElementById('share'))")
    assert shown.evaluate("document.getElementById('share-of').textContent") == "50 %"
    painted = (
        "[...document.querySelectorAll('canvas')].map(c => new Set(c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data).size > 4)"
    )
    assert shown.evaluate(painted) == [True, True, True]


PAINTED = """
(() => {
  const paint = CanvasRenderingContext2D.prototype.fillText, begin = HTMLCanvasElement.prototype.getContext;
  window.painted = new Map();
  window.roofs = new Map();
  HTMLCanvasElement.prototype.getContext = function (...x) {
    painted.set(this, []);
    roofs.set(this, []);
    return begin.apply(this, x);
  };
  for (const name of ["moveTo", "lineTo"]) {
    const move = CanvasRenderingContext2D.prototype[name];
    CanvasRenderingContext2D.prototype[name] = function (x, y) {
      if (name === "lineTo" && this.lineWidth === 2.5) {
        const [a, b] = this.at;
        for (let n = 0; n <= 200; n++) roofs.get(this.canvas).push([a + (x - a) * n / 200, b + (y - b) * n / 200]);
      }
      this.at = [x, y];
      return move.call(this, x, y);
    };
  }
  CanvasRenderingContext2D.prototype.fillText = function (words, x, y) {
    const width = this.measureText(words).width, turned = this.getTransform().b !== 0;
    const left = x - { left: 0, start: 0, center: width / 2, right: width, end: width }[this.textAlign];
    if (!turned && words) painted.get(this.canvas).push([words, left, left + width, y - 8, y + 2]);
    return paint.call(this, words, x, y);
  };
})();
"""
"""Keeps the place of each upright text of a canvas that was painted last, and points of the roof, the thick line: a figure
asks for the context when it begins."""

CROSSING = """
[...painted].flatMap(([canvas, texts]) => texts.flatMap((a, n) => {
  const name = canvas.parentElement.id, on = ([x, y]) => a[1] < x && x < a[2] && a[3] < y && y < a[4];
  const others = texts.slice(n + 1).filter((b) => a[1] < b[2] && b[1] < a[2] && a[3] < b[4] && b[3] < a[4]);
  return [
    ...(name === "roofline-chart" && roofs.get(canvas).some(on) ? [`${a[0]} crosses the roof`] : []),
    ...(a[1] < -1 || a[2] > canvas.clientWidth + 1 ? [`${name}: ${a[0]} is cut`] : []),
    ...others.map((b) => `${name}: ${a[0]} crosses ${b[0]}`),
  ];
}))
"""


@contextmanager
def painted(shown: browser.Page) -> Iterator[None]:
    script = shown.call("Page.addScriptToEvaluateOnNewDocument", source=PAINTED)["identifier"]
    try:
        yield
    finally:
        shown.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
        shown.look(1280)


@needs_browser
@pytest.mark.parametrize("intensity", [0.7, 1.7, 3.0, 300.0])
def test_no_text_of_a_figure_crosses_another(
    shown: browser.Page, tmp_path: Path, task: Task, trials: list[Trial], figures: Figures, intensity: float
) -> None:
    """Also in a narrow window, with two searches, and whatever limits the task."""
    two = figures_of(task, [Side.of("random/0", trials), Side.of("bayes/0", searched(30, "b" * 32, "bayes"))])
    with painted(shown):
        for n, some in enumerate((figures, two)):
            assert some.roof is not None
            moved = round(some.roof.operations / intensity)
            roof = replace(some.roof, bytes_=moved, moving=moved / 6e10)
            path = tmp_path / f"{n}.html"
            path.write_text(page(replace(some, roof=roof)), encoding="utf-8")
            for width in (320, 400, 560, 1100):
                shown.look(width)
                shown.open(path)
                assert shown.evaluate("[...painted.values()].filter((x) => x.length > 3).length") == 3
                assert shown.evaluate("roofs.get(document.querySelector('#roofline-chart canvas')).length") > 200
                assert shown.evaluate(CROSSING) == [], width


@needs_browser
def test_two_searches_open_in_a_browser(shown: browser.Page, tmp_path: Path, task: Task, trials: list[Trial]) -> None:
    other = searched(30, "b" * 32, "bayes")
    check(
        shown, tmp_path / "two.html", page(figures_of(task, [Side.of("random/0", trials), Side.of("bayes/0", other)]))
    )


@needs_browser
def test_hostile_text_does_nothing_in_a_browser(
    shown: browser.Page, tmp_path: Path, task: Task, trials: list[Trial]
) -> None:
    check(shown, tmp_path / "evil.html", page(hostile(task, trials)))


@needs_browser
def test_no_trials_open_in_a_browser(shown: browser.Page, tmp_path: Path, task: Task, trials: list[Trial]) -> None:
    none = [replace(t, status="crash", seconds=None, times=()) for t in trials[:2]]
    check(shown, tmp_path / "none.html", page(figures_of(task, [Side.of("x", none)])))


@needs_browser
def test_ten_thousand_trials_stay_quick(shown: browser.Page, tmp_path: Path, task: Task, trials: list[Trial]) -> None:
    """The file is small, and marks are painted: there is no element for each trial."""
    many = [replace(trials[n % 60], program_key=str(n), trial=n) for n in range(10_000)]
    text = page(figures_of(task, [Side.of("long", many)]))
    assert len(text) < 3_000_000
    check(shown, tmp_path / "many.html", text)
    assert shown.evaluate("document.querySelectorAll('*').length") < 2_000
