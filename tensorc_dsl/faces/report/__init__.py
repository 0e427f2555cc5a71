"""Output for people: findings, tables, progress, files.

Nothing here decides anything.
"""
