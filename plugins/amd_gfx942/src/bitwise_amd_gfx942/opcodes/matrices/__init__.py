"""MFMA: matrix products of a wave."""
