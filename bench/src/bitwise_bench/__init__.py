"""Measurements of this repository: corpora, recorders of device bytes, campaigns, mutants, benchmarks, tables."""
