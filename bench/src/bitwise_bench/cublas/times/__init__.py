"""Times of products on a GPU, the costs of schedules that are fitted to them, and the time of the host."""
