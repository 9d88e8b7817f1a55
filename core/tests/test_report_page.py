"""The HTML page: bundled libraries as published, every class with its divergence, hostile names, and a real browser."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from toy_texts import launch, row_sum, write
from typer.testing import CliRunner

from bitwise_core.cli import app
from bitwise_core.report.page import BUNDLED, libraries, script_json

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
SOURCE = "".join(f"line {number} of the kernel\n" for number in range(1, 9))
HOSTILE = "</script><script>document.title = 'taken'</script>"


def test_the_libraries_are_as_published_and_have_their_licences() -> None:
    named = {"libraries.json"}
    for each in libraries():
        content = (BUNDLED / each.file).read_bytes()
        assert hashlib.sha256(content).hexdigest() == each.sha256, each.file
        assert each.version in each.package
        assert "Permission" in (BUNDLED / each.licence_file).read_text()
        assert "</script" not in each.text.lower()
        assert "sourceMappingURL" not in each.text
        named |= {each.file, each.licence_file}
    assert {path.name for path in BUNDLED.iterdir()} == named


def test_json_in_a_script_cannot_end_it() -> None:
    content = {HOSTILE: ["<!--", "]]>", "\u2028", "&amp;"]}
    text = script_json(content)
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == content


def page_of(tmp_path: Path, texts: dict[str, str], titles: dict[str, str]) -> str:
    pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")
    folder = tmp_path / "kernels"
    folder.mkdir()
    write(folder, dict(texts), [launch(name) for name in texts])
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "configurations": titles}))
    (folder / "kernel.py").write_text(SOURCE)
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["partition", str(folder), "--html", str(page), "--workers", "1", "--no-cache"])
    assert done.exit_code == 0, done.output
    return page.read_text()


def variants(count: int) -> dict[str, str]:
    """Return kernels that multiply the sum of a row by different constants, each in a class of its own."""
    found = {"a.ptx": row_sum(), "b.ptx": row_sum(swapped=True), "c.ptx": row_sum(neighbours=True)}
    for number in range(count - 2):
        begin, store = row_sum().rsplit("st.global.f32", 1)
        register = store.split(",")[1].split(";")[0].strip()
        scaled = f"mul.rn.f32 {register}, {register}, 0f{0x40400001 + number:08X};\n"
        predicate = re.search(r"(@%p\d+ )$", begin)
        guard = predicate[1] if predicate else ""
        found[f"d{number}.ptx"] = f"{begin.removesuffix(guard)}{scaled}{guard}st.global.f32{store}"
    return found


def data_of(page: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        re.findall(r'<script type="application/json" id="data-1">(.*?)</script>', page)[0]
    )
    return found


def test_every_class_has_its_divergence(tmp_path: Path) -> None:
    page = page_of(tmp_path, variants(12), {})
    data = data_of(page)
    assert data["classes"] == 12
    assert [each["class"] for each in data["others"]] == list(range(2, 13))
    assert all(each["meaning"] and each["left"]["tree"] and each["right"]["tree"] for each in data["others"])
    assert page.count("diverges at Y[0]") == 11
    assert data["sources"]["kernel.py"]["lines"][3] == "line 4 of the kernel"


def test_the_divergence_is_marked_in_both_trees(tmp_path: Path) -> None:
    data = data_of(page_of(tmp_path, variants(2), {}))
    (pair,) = data["others"]

    def marked(node: dict[str, Any]) -> list[dict[str, Any]]:
        own = [node] if node.get("m") == "first" else []
        return own + [each for below in node.get("c", []) for each in marked(below)]

    for side in ("left", "right"):
        (first,) = marked(pair[side]["tree"])
        assert first["t"] == "add.rn.fp32"
        lines = data["assemblies"][pair[side]["kernel"]]
        assert lines["lines"][first["l"] - lines["first"]].strip().startswith("add.rn.f32")
    bars = pair["left"]["order"]["bars"]
    assert pair["left"]["order"]["terms"] == 64
    assert sum(bar["level"] == 0 for bar in bars) == 32


PROBE = """<script>
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("securitypolicyviolation", (event) => errors.push(event.blockedURI));
</script>"""
ACTIONS = """<script>
addEventListener("load", () => setTimeout(() => {
  const count = (what) => document.querySelectorAll(what).length;
  const found = {};
  found.title = document.title;
  found.width = [document.documentElement.scrollWidth, innerWidth];
  found.nodes = count(".tree g.node");
  found.first = count(".tree g.first");
  found.lit = count(".listing span.lit");
  const node = document.querySelector(".tree g.first");
  node.dispatchEvent(new MouseEvent("click", {bubbles: true}));
  found.folded = count(".tree g.node");
  node.dispatchEvent(new MouseEvent("click", {bubbles: true}));
  found.unfolded = count(".tree g.node");
  const lines = (what) => [...document.querySelectorAll(`.pane:first-child .listing span.${what}`)];
  lines("known").find((each) => each.textContent.startsWith("line 5")).click();
  found.marked = lines("lit").map((each) => each.textContent.trim().split(" ")[0]);
  found.cells = count(".heat rect");
  const filter = document.querySelector(".heatmap input");
  filter.value = "num_warps=8";
  filter.dispatchEvent(new Event("input"));
  found.filtered = count(".heat rect");
  found.rows = count(".gridjs-tbody .gridjs-tr");
  found.orders = count(".order svg");
  document.getElementById("theme").click();
  found.theme = document.documentElement.dataset.theme;
  found.back = getComputedStyle(document.body).backgroundColor;
  found.requests = performance.getEntriesByType("resource").length;
  found.errors = errors;
  parent.postMessage(JSON.stringify(found), "*");
}, 300));
</script>"""
FRAME = """<!doctype html><pre id="found"></pre>
<script>addEventListener("message", (event) => { document.getElementById("found").textContent = event.data; });</script>
<iframe src="probed.html" style="width: WIDTHpx; height: 900px; border: 0"></iframe>"""
"""A frame has any width, which a window has not."""


@browser
@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_in_a_browser(width: int, tmp_path: Path) -> None:
    titles = {"a.ptx": f"num_warps=4, {HOSTILE}", "b.ptx": "num_warps=4", "c.ptx": "num_warps=8"}
    page = (
        page_of(tmp_path, variants(2), titles)
        .replace("<head>", f"<head>{PROBE}")
        .replace("</body>", f"{ACTIONS}</body>")
    )
    assert HOSTILE not in page.replace(ACTIONS, "")
    (tmp_path / "probed.html").write_text(page)
    (tmp_path / "frame.html").write_text(FRAME.replace("WIDTH", str(width)))
    found = _dumped(tmp_path / "frame.html", tmp_path)
    assert found["errors"] == []
    assert found["requests"] == 0
    assert found["title"] == "bitwise: kernels"
    shown, inner = found["width"]
    assert inner == width
    assert shown <= inner  # nothing is wider than the page
    assert found["first"] == 2
    assert found["lit"] >= 4  # a line of the source and one of the assembly in each pane
    assert found["folded"] < found["nodes"] == found["unfolded"]
    assert found["marked"][0] == "line"
    assert {"add.rn.f32"} <= set(found["marked"][1:])
    assert (found["cells"], found["filtered"]) == (2, 1)
    assert (found["rows"], found["orders"]) == (3, 2)
    assert found["theme"] == "dark"
    assert found["back"] == "rgb(18, 22, 29)"


def _dumped(page: Path, folder: Path) -> dict[str, Any]:
    arguments = [
        "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--window-size=1400,1000",
        f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    environment = {**os.environ, "HOME": str(folder)}
    done = subprocess.run(
        [str(BROWSER), *arguments], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    found = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    content: dict[str, Any] = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    return content
