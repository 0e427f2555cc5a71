"""The current machine: its description, its peak and bandwidth, and the speed of other libraries on it.

Nothing here knows a schedule.
"""
