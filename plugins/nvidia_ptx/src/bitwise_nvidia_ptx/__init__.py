"""PTX for every NVIDIA architecture: the parser and the instructions that the architectures share."""
