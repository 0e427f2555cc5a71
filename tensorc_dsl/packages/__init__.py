"""Where a `use` finds its file: folders, module paths, installed packages.

Nothing here reads what a file means.
"""
