"""Loops whose trip count depends on the launch: summarised as folds, abstracted, or one iteration of a tile."""
