"""What plugins provide: hook specifications, the registry, library profiles and launchers."""
