"""A self-contained page about partitions: classes, configurations, where classes part, and one tree as a picture."""

from __future__ import annotations

from bitwise_core.report.page import render
from bitwise_core.report.section import Section, section

__all__ = ["Section", "render", "section"]
