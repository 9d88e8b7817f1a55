"""Products that are recorded on one GPU and replayed there or on another, byte for byte."""
