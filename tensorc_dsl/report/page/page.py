"""Puts the page together: its sections, its style, its script and its data."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from tensorc_dsl.report.page.data import chart_data
from tensorc_dsl.report.page.draws import draws, importances, parallel
from tensorc_dsl.report.page.figures import Figures
from tensorc_dsl.report.page.markup import Markup, element, embedded
from tensorc_dsl.report.page.search import changes, head, progress, roofline, winner

_HERE = Path(__file__).parent


def page(f: Figures) -> str:
    """The page as HTML. Nothing in it is loaded from elsewhere: its own policy allows its script and its style only."""
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    nothing = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:"
    policy = f"{nothing}; style-src {_hash(style)}; script-src {_hash(script)}"
    title = f"{f.task}: report"
    sections = [progress(f), roofline(f), importances(f), draws(f), parallel(f), changes(f), winner(f)]
    # The scripts' own texts are ours; the data cannot end their element.
    return "<!doctype html>\n" + element(
        "html",
        element(
            "head",
            Markup('<meta charset="utf-8">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<meta name="color-scheme" content="light dark">'),
            Markup('<link rel="icon" href="data:,">'),
            element("title", title),
            Markup(f"<style>{style}</style>"),
        ),
        element(
            "body",
            element("a", "Skip to the contents", class_="skip", href="#contents"),
            head(f),
            element("main", *sections, id="contents"),
            element("script", embedded(chart_data(f)), type="application/json", id="data"),
            Markup(f"<script>{script}</script>"),
        ),
        lang="en",
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
