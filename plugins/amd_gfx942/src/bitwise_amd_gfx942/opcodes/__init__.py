"""What the instructions of gfx942 do, by kind; each module fills one table."""
