"""Instructions on vector registers, which act in each lane or between the lanes of a wave."""
