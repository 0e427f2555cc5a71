"""Builds candidates, checks them against the reference and times them, in processes of their own.

Nothing here decides what is tried.
"""
