"""Answers questions about index arithmetic with integer sets: bounds, regions, dependences, simplification.

The only room that imports islpy; nothing here changes a program.
"""
