"""Attention on a GPU: its bytes against evaluation on a CPU and over schedules, its speed and its error."""
