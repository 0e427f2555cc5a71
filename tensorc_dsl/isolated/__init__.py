"""Child processes that end with their parent, have limits, and import nothing from the working folder."""
