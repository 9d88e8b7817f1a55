"""What PTX instructions do, by kind; each module fills one table."""
