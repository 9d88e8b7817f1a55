"""The plugin interface: hook specifications, the registry, library profiles and launchers."""
