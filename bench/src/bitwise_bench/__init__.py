"""Measurements of this repository: kernel corpora, recorders, campaigns, mutants, benchmarks and tables."""
