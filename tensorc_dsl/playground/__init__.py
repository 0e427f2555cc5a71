"""The playground: a page in the browser with an editor, what is wrong in its text, and what its schedules make of it.

Whatever a text says is worked out in processes that can be killed, `desk.py`. Nothing here decides what a text means: that is
asked of the layers below.
"""
