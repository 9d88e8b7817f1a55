"""Measurements of this repository: kernel corpora, recorders of device bytes, campaigns, mutants, benchmarks, tables."""
