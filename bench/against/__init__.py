"""Measures the standard library's operators, tuned, beside other libraries: `python -m bench`; docs/bench.md describes it."""
