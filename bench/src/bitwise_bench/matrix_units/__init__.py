"""Matrix instructions against their rows."""
