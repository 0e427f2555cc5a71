"""Turns a compute into a program: ranges, stages, reductions, scans.

Nothing here depends on schedules, or on the checks of names and kinds above.
"""
