"""An architecture plugin for toy1, a machine that does not exist."""
