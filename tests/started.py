"""What tests start in processes of their own."""

from __future__ import annotations

MOMENT = """\
from tensorc_dsl.machine import baseline, roof
from tensorc_dsl.search import drift
baseline.SECONDS, roof.CREDIBLE, drift.PATIENCE = 0.005, 0.0, 0.0
"""
"""A program that begins with this measures the machine and NumPy for a moment, as searches in the process of a test do
(`tests/conftest.py`). Else NumPy alone is timed for a second."""
