"""A mode in which the bytes of a row never depend on the other rows of its batch."""
