"""What is wrong with a file: names, kinds, uses.

Nothing here expands a schedule.
"""
