"""The strategies of a search, a file each: `extensions.STRATEGIES` finds them by its name."""
