"""What ptxas makes of a text: sequences that it merges, and the stores that it emits."""
