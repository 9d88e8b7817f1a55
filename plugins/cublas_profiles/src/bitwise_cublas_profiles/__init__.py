"""cuBLASLt: query its heuristic, run the chosen algorithm, and map its configuration to a descriptor."""
