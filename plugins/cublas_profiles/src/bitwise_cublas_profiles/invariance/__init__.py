"""Batch invariance of matrix products: which numbers of rows give a row of the output the same bits."""
