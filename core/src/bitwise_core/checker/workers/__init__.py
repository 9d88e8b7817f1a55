"""The processes that make readings, their jobs, and executors of other machines."""
