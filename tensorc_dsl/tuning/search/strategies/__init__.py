"""The search strategies, one file each; `extensions.STRATEGIES` finds them by name."""
