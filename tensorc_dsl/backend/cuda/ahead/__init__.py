"""Kernels of a GPU ahead of time: PTX, a C header, and a loader in C on the driver's interface.

Nothing here runs a kernel.
"""
