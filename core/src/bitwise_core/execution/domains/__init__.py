"""Value domains: the interface, terms for the checker, bit patterns for simulation."""
