"""Expands a space or a schedule into traces.

Nothing here lowers, measures or searches.
"""
