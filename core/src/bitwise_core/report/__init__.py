"""A self-contained HTML page on partitions: classes, configurations, divergences of classes, and one tree."""
