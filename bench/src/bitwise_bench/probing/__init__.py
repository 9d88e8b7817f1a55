"""Tests of the instruments that reveal orders of summation."""
