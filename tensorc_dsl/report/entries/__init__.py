"""Entries of the reference, from the declarations: what `explain NAME` prints, and what the pages are made of."""
