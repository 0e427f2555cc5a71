"""The command line.

Whatever others could use as well is in `api` or below.
"""
