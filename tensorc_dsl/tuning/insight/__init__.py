"""Derives from the records of a task which draws matter, and which of their values are good.

Nothing here prints, measures or writes a record.
"""
