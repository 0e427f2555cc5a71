"""Runs kernels on a GPU through PyCUDA: the device, modules, arrays, streams, times.

PyCUDA is imported when a device is used. Nothing here makes code.
"""
