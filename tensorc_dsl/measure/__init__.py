"""Candidates are built, checked against the reference and timed, in processes of their own.

Nothing here decides what is tried.
"""
