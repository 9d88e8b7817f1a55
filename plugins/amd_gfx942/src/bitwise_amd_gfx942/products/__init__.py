"""Matrix products on gfx942, from a descriptor alone."""
