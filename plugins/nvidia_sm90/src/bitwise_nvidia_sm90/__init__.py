"""NVIDIA sm_90: warpgroup matrix instructions and the architecture's row."""
