"""The current machine: its description, its peak and bandwidth, and the speed of other libraries on it.

Nothing here depends on schedules.
"""
