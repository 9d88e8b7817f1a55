"""The matrix-unit rows of sm_70, sm_75, sm_80, sm_86 and sm_89."""
