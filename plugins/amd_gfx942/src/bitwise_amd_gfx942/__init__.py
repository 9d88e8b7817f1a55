"""The AMD gfx942 (CDNA3) architecture: parser, instructions, matrix units, launcher."""
