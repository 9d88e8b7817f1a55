"""Block symmetry: a large grid is decided on a few blocks; all other blocks are proved to be translations of them."""
