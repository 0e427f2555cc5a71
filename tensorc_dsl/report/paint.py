"""Colours rendered diagnostics: the text is unchanged, and control sequences surround its parts."""

from __future__ import annotations

import re

from tensorc_dsl.diagnostic import Diagnostic, render

_RESET = "\x1b[0m"
_BOLD, _RED, _YELLOW, _BLUE, _CYAN = "\x1b[1m", "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;34m", "\x1b[36m"


def paint(diagnostic: Diagnostic) -> str:
    """The diagnostic as rendered by `render`, in the colours of rustc."""
    head, *rest = render(diagnostic).split("\n")
    severity, _, message = head.partition(":")
    signal = _YELLOW if diagnostic.severity == "warning" else _RED
    return "\n".join([f"{signal}{severity}{_RESET}{_BOLD}:{message}{_RESET}", *(_line(line, signal) for line in rest)])


def _line(line: str, signal: str) -> str:
    if match := re.match(r"^( *)(-->)(.*)$", line):
        return f"{match[1]}{_BLUE}{match[2]}{_RESET}{match[3]}"
    if match := re.match(r"^( *\|)(\s*)(\^+)(.*)$", line):
        return f"{_BLUE}{match[1]}{_RESET}{match[2]}{signal}{match[3]}{match[4]}{_RESET}"
    if match := re.match(r"^( *\d* \|)(.*)$", line):
        return f"{_BLUE}{match[1]}{_RESET}{match[2]}"
    if match := re.match(r"^( *)(= [^:]+:)(.*)$", line):
        return f"{match[1]}{_CYAN}{match[2]}{_RESET}{match[3]}"
    return line
