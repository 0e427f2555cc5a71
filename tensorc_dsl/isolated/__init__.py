"""Child processes: bound to their parent, limited, and out of reach of what lies in the working folder."""
