"""Cost of pinned reduction orders on a GPU: the benchmark suite, tuning, records, charts, and the equivalence proof."""
