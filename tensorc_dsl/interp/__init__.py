"""A space or a schedule is expanded into traces.

Nothing here lowers, measures or searches.
"""
