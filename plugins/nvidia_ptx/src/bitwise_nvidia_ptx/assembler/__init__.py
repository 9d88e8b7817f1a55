"""ptxas: the assemblers of this machine, their answers, and the cache of these."""
