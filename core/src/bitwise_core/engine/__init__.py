"""Running a kernel over a domain of values: control flow, barriers and divergence; readings of a launch."""
