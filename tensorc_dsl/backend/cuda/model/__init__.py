"""A model of the time of kernels on GPUs: what their threads do, counted from lowered code, and what a machine makes of it.

Nothing here makes code of a kernel or runs one.
"""
