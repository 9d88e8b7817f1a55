"""The launch-parametric analysis: loops summarised as folds, signatures that hold for every launch."""
