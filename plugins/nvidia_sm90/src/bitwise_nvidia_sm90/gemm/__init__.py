"""Matrix products from a descriptor alone: what a kernel needs to know of one, and how it is launched."""
