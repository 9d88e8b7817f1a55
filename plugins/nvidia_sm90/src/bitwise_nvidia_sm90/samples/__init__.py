"""Small kernels of Triton 3.6.0 with their launches, for the suite that every architecture's plugin runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any


def samples() -> Iterator[dict[str, Any]]:
    """Each sample as the suite takes it: name, text, launch, group and value."""
    folder = files(__package__)
    for entry in json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["kernels"]:
        launch = {key: entry[key] for key in ("file", "entry", "grid", "block", "args")}
        text = (folder / entry["file"]).read_text(encoding="utf-8")
        yield {"name": entry["file"], "text": text, "launch": launch, "group": entry["group"], "value": entry["value"]}
