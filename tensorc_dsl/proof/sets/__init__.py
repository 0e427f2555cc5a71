"""Answers questions about index arithmetic with integer sets: bounds, regions, dependences, simplification.

The only layer that imports islpy; nothing here changes a program.
"""
