"""PTX and gfx942 as the adversary writes them: operations, identities, and kernels of many programs."""
