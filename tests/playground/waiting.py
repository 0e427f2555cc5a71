"""Waits for what a page does."""

from __future__ import annotations

from tests.page import browser


def until(page: browser.Page, condition: str) -> None:
    """The condition, in JavaScript, holds; a page in which it does not for two minutes hangs."""
    held = page.evaluate(
        "new Promise((done) => { let left = 2400; const look = () => "
        f"({condition}) ? done(true) : left-- ? setTimeout(look, 50) : done(false); look(); }})"
    )
    assert held, (condition, page.evaluate("document.getElementById('status').textContent"), page.said)
