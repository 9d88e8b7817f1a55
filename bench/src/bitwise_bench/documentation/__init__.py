"""The documentation: its site, its pictures, the reference of the command, and the examples of its pages."""
