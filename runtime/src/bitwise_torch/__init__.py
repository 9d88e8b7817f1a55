"""Matrix products of PyTorch tensors with chosen bits: products from a descriptor, lock files, dispatch."""
