"""Searches for fast schedules: measures candidates in processes of their own, records them, and learns from the records.

Nothing here prints, or decides whether a schedule is right.
"""
