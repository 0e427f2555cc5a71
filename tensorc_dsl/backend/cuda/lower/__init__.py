"""Lowers scheduled programs to kernels of a GPU: axes, private and shared storage, phases, barriers.

Nothing here knows LLVM or PTX.
"""
