"""Runs kernels on a GPU through PyCUDA: the device, modules, arrays, streams, times.

PyCUDA is imported when a device is asked for. Nothing here makes code.
"""
