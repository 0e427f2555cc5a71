"""The database of trials.

Nothing here decides what is tried, or runs a kernel.
"""
