"""What a scheduler asks about index arithmetic: simplification, bounds, regions, dependences. The only door to islpy."""
