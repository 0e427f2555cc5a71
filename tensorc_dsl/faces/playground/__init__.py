"""The playground: a page in the browser with an editor, the errors of its text, and the results of its schedules.

Texts are processed in worker processes that can be killed, `server.py`. Nothing here defines what a text means: the layers
below do.
"""
