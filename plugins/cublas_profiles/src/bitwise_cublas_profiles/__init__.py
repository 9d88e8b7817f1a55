"""cuBLASLt: what its heuristic answers, run exactly as answered, and which bits follow."""
