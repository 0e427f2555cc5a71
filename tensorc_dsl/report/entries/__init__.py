"""Entries of the reference, made from the declarations, for `explain NAME` and the generated pages."""
