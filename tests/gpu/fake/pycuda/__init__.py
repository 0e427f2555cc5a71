"""Stands for PyCUDA in tests, where there is neither a GPU nor a driver."""
