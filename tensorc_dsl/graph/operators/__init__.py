"""The operators that models are made of: for each, the compute of a node with known shapes.

A table says which function writes a node. Most operators are entries of a family: elementwise, reductions, windows, movement.
"""
