"""A scheduled program becomes flat loops, one named pass after another.

Nothing here knows a code generator or a processor; what does is in a backend.
"""
