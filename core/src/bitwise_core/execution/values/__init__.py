"""Values of registers: constants, symbolic vectors with hashes of their terms, and the canonical forms of terms."""
