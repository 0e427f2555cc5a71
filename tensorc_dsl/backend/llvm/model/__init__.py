"""A model of the time of kernels on CPUs, from their lowered loops and from what a processor does in a cycle.

Nothing here makes code of a kernel or runs one.
"""
