"""The machine that we are on: its description, its peak, and what other libraries reach on it.

Nothing here knows a schedule.
"""
