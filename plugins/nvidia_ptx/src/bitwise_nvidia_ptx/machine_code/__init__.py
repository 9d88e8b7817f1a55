"""Machine code of ptxas: object files, SASS listings, and what their functions compute."""
