"""The conformance suite that every architecture plugin runs."""
