"""The command line.

Code that is useful without a command line is in `api` or below.
"""
