"""Child processes that end with their parent, have limits, and import nothing from the working folder.

Nothing here knows a program, nor why a process is started.
"""
