"""The memories of a launch (shared, global, local, parameters), race detection, and the launch's outputs."""
