"""Says what the records of a task teach about its draws: which ones matter, and which values are good.

Nothing here prints, measures or writes a record.
"""
