"""Child processes that end with their parent, have limits, and import nothing from the working folder.

Nothing here depends on programs, or on the purpose of a process, whose messages are declared where its work is.
"""
