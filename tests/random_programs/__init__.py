"""Random straight-line programs, as PTX and as functions on bit patterns."""
