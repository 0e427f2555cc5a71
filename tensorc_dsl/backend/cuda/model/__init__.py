"""A model of the time of kernels on GPUs: what their threads do, counted from lowered code, and what a machine makes of it.

Nothing is run. The model ranks schedules; its cycles are no measurement.
"""
