"""Turns a compute into a program: ranges, stages, reductions, scans.

Nothing here knows schedules, nor the checks of names and kinds above.
"""
