"""Take the pictures of the documentation: the playground, light and dark, and a file as Pygments colours it.

They need a browser, and look a little different with each, so they are not compared: `make pictures` takes them again.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, cast

from pygments import highlight
from pygments.formatters import HtmlFormatter

from tensorc_dsl.faces.playground.page import first
from tensorc_dsl.faces.playground.server import Playground
from tensorc_dsl.syntax.highlight.lexer import TschedLexer
from tests.page import browser
from tests.playground.waiting import until

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
SHOWN = ROOT / "examples" / "softmax.tsched"

WIDTH, HEIGHT = 1180, 760

FRAME = "body { margin: 0; padding: 12px 16px; font-size: 15px; line-height: 1.45 } pre { margin: 0 }"


def playground(page: browser.Page, served: Playground) -> None:
    """The page in the middle of a schedule, and with a step that is refused."""
    page.visit(served.address)
    until(page, "playground.state.shown !== null")
    page.evaluate("document.querySelector('#draws input[type=radio][value=\"[16, 4]\"]').click()")
    until(page, "playground.state.shown.text.includes('i_0 in 16')")
    page.evaluate("(s => { s.value = 6; s.dispatchEvent(new Event('input')) })(document.getElementById('step'))")
    until(page, "document.querySelector('#editor .marked')")
    page.look(WIDTH, HEIGHT)
    page.screenshot(DOCS / "playground.png", whole=False)
    page.evaluate(
        "(v => { const at = String(v.state.doc).indexOf('vectorize(j1)');"
        "v.dispatch({ changes: { from: at, to: at + 13, insert: 'vectorize(k1)' } }) })(playground.text)"
    )
    until(page, "!document.getElementById('problem').hidden")
    page.evaluate("document.getElementById('step').value = 9, document.getElementById('step').oninput()")
    page.look(WIDTH, HEIGHT, dark=True)
    page.screenshot(DOCS / "playground-dark.png", whole=False)


def highlighted(page: browser.Page, folder: Path) -> None:
    """A file in the colours of the documentation's site."""
    formatter = cast("Any", HtmlFormatter(style="friendly", full=True))  # Pygments has few types
    file = folder / "highlighted.html"
    text = highlight(SHOWN.read_text(encoding="utf-8"), TschedLexer(), formatter)
    file.write_text(text.replace("</style>", f"{FRAME}</style>").replace("<h2></h2>", ""), encoding="utf-8")
    page.open(file)
    page.look(WIDTH, HEIGHT)
    height = page.evaluate("Math.ceil(document.querySelector('pre').getBoundingClientRect().bottom) + 12")
    page.look(WIDTH, min(int(height), HEIGHT))
    page.screenshot(DOCS / "highlighted.png", whole=False)


def main() -> int:
    if browser.FOUND is None:
        print(f"no browser: none of {', '.join(browser.NAMES)}", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory() as folder,
        Playground(first(), records=str(Path(folder) / "none.sqlite")) as served,
    ):
        threading.Thread(target=served.serve_forever, daemon=True).start()
        with browser.browser(Path(folder)) as page:
            playground(page, served)
            highlighted(page, Path(folder))
        served.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
