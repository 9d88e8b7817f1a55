"""Canonical rules as data: patterns, facts, rules, and the table that the checker executes."""
