"""What is written in Triton, which only Triton loads: `functions` for use in any kernel, `building` behind them."""
