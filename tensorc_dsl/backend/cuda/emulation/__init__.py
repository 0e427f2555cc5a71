"""Runs kernels of a GPU on the CPU, thread by thread, and reports faults.

Nothing here is part of a kernel's code for a GPU.
"""
