"""Ahead-of-time output: a kernel as an object file, a shared library and a C header that need no Python.

Nothing here runs a kernel.
"""
