"""Writes the generated parts of the documentation from the declarations in the code: `python -m docs.generate`."""
