"""The rules of the table applied to values: plans, matching, and what a result keeps for further rules."""
