"""A self-contained HTML page on partitions: classes, configurations, divergences of classes, and one tree."""

from __future__ import annotations

from bitwise_core.report.page import render
from bitwise_core.report.section import Section, section

__all__ = ["Section", "render", "section"]
