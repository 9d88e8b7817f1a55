"""Expression trees of results: their provenance, the first divergence of two, and sentences on why they differ."""
