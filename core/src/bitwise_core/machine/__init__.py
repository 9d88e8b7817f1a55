"""The abstract machine: lane values, domains of values, memory and registers, and what an architecture hands over."""
