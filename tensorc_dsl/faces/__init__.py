"""What people and programs use: Python, the command line, editors, notebooks, the playground, and output for people.

Nothing here proves, lowers or searches: the rooms below do.
"""
