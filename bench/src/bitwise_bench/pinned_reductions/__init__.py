"""What a pinned order costs on a GPU: the suite, its measurement, its record and its chart."""
