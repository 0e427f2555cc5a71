"""Measures candidates on many machines, through Dask: workers build and time what a search process sends them.

Nothing here decides what is tried. Dask is imported where it is used: it is an extra.
"""
