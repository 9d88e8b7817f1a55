"""Memories of a launch: shared, global, local and parameters; races; what a launch stores."""
