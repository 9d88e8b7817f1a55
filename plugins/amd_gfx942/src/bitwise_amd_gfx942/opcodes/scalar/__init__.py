"""Instructions on scalar registers."""
