"""A search for kernels that the checker calls Equal though they return different bytes.

Programs are expressions over the same loaded values.  Many of them share one kernel, in which each stores its result to
an element of its own, so that one analysis and one execution judge all pairs of them.
"""
