"""The backend for NVIDIA GPUs: kernels with phases and barriers, PTX by LLVM, and their emulation on the CPU.

Code is written by the generator of the backend for CPUs; here is what a GPU adds to it.
"""
