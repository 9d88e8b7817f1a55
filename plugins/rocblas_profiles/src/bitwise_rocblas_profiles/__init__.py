"""rocBLAS and hipBLASLt on gfx942: which kernel their published tables select, and which bits follow from it."""
