"""What every room may use: texts and places in them, diagnostics, files of the package, files that are written, extensions.

Nothing here depends on the language.
"""
