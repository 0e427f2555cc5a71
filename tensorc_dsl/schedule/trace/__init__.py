"""Draws, decisions, traces and their handlers.

Nothing here reads a syntax tree.
"""
