"""PTX's instructions: the text of a declared one, compared with the definition of those that are known."""
