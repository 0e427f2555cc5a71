"""The answers of the language server, one file for each."""
