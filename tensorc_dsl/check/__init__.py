"""Checks a file: names, kinds, uses.

Nothing here expands a schedule.
"""
