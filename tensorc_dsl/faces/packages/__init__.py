"""Resolves the path of a `use` to files: folders, module paths, installed packages.

Nothing here interprets the content of a file.
"""
