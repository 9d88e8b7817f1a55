"""Dependence trees (expression DAGs): the operations that compute a value from the initial content of memory."""

from __future__ import annotations
