"""Terms of operations without an order as sets of members: unions, extrema, and the places of extrema."""
