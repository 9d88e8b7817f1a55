"""The demonstration: real compiles, partitioned without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

from bitwise_bench import demo


@pytest.mark.usefixtures("without_machine_code")
def test_the_demonstration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert demo.main(["--html", str(page), "softmax_rows"]) == 0
    shown = capsys.readouterr().out
    assert "24 kernels compiled in" in shown
    assert "ROW_BLOCK=1|2|4, BLOCK=1024|2048, num_warps=1" in shown
    text = page.read_text()
    assert text.count('<tr><td><span class="chip') == 4
    assert "exp(score - tl.max(" in text
    assert "How Y[0] is computed" in text
    assert "div.full.fp32" in text


def test_the_demonstration_rejects_unknown_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--html", str(tmp_path / "page.html"), "hardmax_rows"]) == 2
    assert capsys.readouterr().err == "There is no sample 'hardmax_rows'; there are softmax_rows, masked_gemm.\n"
