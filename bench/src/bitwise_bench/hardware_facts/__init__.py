"""Facts of hardware that one instruction shows, measured on an sm_90 GPU: one module for each kind of instruction."""
