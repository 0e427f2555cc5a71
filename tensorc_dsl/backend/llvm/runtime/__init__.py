"""Loads and runs machine code in this process: arguments, threads, scratch memory, times.

Nothing here makes the code of a task.
"""
