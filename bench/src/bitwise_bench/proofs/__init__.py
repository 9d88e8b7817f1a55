"""Proofs of the canonical rules: obligations over bit-vectors, discharged by solvers or by exhaustion."""
