"""What people read: findings, tables, progress, files.

Nothing here decides anything.
"""
