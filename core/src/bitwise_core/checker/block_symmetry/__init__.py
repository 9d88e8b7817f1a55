"""Block symmetry: large grids decided on a few blocks, of which the others are proved to be translations."""
