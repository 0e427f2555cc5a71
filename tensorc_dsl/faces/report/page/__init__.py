"""The page of a search: one HTML file that holds all it shows."""
