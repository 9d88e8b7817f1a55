"""The tables of README.md and docs/, generated from the records and the plugins."""
