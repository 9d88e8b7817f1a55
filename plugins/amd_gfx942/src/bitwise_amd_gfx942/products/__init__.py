"""Matrix products on gfx942 from their descriptors."""
