"""The launch-parametric analysis: symbolic launches, loops summarised as folds, signatures for every launch."""
