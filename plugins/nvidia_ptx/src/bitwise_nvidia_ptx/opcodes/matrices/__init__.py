"""Matrix instructions of a warp, and their operands in registers and in shared memory."""
