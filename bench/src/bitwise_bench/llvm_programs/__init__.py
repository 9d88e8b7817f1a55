"""Random programs of LLVM for gfx942, whose values NumPy computes: an oracle that shares nothing with the plugin."""
