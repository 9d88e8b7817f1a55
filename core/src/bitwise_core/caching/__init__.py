"""Results that are kept on disk between runs: entry files, the digests that name them, and the digest of the code."""
