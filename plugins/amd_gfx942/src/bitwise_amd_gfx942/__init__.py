"""The AMD architectures gfx942 (CDNA3) and gfx950 (CDNA4): parser, instructions, matrix units, launcher."""
