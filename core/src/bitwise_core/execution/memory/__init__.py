"""The memories of a launch (shared, global, local, parameters), and the launch's outputs."""
