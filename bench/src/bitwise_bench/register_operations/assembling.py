"""Kernels of forms through ptxas, which names the lines that are no PTX of the architecture."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from bitwise_bench.register_operations.forms import Form
from bitwise_bench.register_operations.kernels import FormsKernel

GPU = "sm_90a"
_ERROR = re.compile(r"line (\d+); error\s*: (.*)")


class AssemblerFailed(RuntimeError):
    """ptxas failed without naming the line of a form."""


def assemble(ptxas: str, kernel: FormsKernel, gpu: str = GPU) -> tuple[FormsKernel | None, bytes, dict[Form, str]]:
    """Return the kernel of the forms that ptxas accepts for `gpu`, its object file, and the messages for the others.

    The kernel is None if ptxas accepts no form.  Raises AssemblerFailed.
    """
    rejected: dict[Form, str] = {}
    while True:
        left = tuple(form for form in kernel.forms if form not in rejected)
        if not left:
            return None, b"", rejected
        trial = FormsKernel(left)
        found, output = _run(ptxas, trial.text.replace(f".target {GPU}", f".target {gpu}"), gpu)
        if found is not None:
            return trial, found, rejected
        named = {trial.form_on(int(line)): message for line, message in _ERROR.findall(output)}
        if None in named or not named:
            raise AssemblerFailed(f"ptxas rejects a kernel without naming a form: {output[:400]}")
        for form, message in named.items():
            assert form is not None
            rejected[form] = message.strip()


def _run(ptxas: str, text: str, gpu: str) -> tuple[bytes | None, str]:
    with tempfile.TemporaryDirectory(prefix="bitwise-") as folder:
        source, target = Path(folder, "forms.ptx"), Path(folder, "forms.cubin")
        source.write_text(text, encoding="ascii")
        done = subprocess.run(
            [ptxas, f"--gpu-name={gpu}", str(source), "-o", str(target)], capture_output=True, text=True, check=False
        )
        return (None if done.returncode else target.read_bytes()), done.stdout + done.stderr
