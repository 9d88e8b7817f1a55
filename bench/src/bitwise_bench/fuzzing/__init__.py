"""Malformed files for every reader of files: an input has a result, or an error of the package with a sentence."""
