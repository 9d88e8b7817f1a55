"""What ptxas may make of a text: the instructions whose results it may change, and the rules that keep them apart."""
