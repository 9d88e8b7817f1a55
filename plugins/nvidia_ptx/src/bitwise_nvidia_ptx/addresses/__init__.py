"""Addresses of buffers and arrays: where their numbers are read, stored and exchanged."""
