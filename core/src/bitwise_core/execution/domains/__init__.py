"""Value domains: terms (hashes of dependence trees) and bits (bit patterns), behind one interface."""
