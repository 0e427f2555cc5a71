"""The generated parts of `docs/reference/`, made from the declarations themselves: `python -m docs.generate`."""
