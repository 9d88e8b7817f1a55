"""Dependence trees: which operations, in which order, make a value out of the initial content of memory."""

from __future__ import annotations
