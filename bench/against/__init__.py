"""The standard library's operators, tuned, beside other libraries: `python -m bench`, told in docs/bench.md."""
