"""What is known of floating-point numbers beside their terms: NaNs, signs, zeros, and which are finite."""
