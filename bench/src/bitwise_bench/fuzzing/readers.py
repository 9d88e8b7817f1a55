"""Every reader of a user's files: valid files to begin with, and a call that reads a file."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from bitwise_core.errors import InputError

ROOT = Path(__file__).parents[4]

Read = Callable[[bytes, Path], None]

KEY = "ab" * 32
"""The key of a kept result."""

SAMPLES = {
    ".ptx": ROOT / "plugins/nvidia_sm90/tests/samples/sm_90",
    ".amdgcn": ROOT / "plugins/amd_gfx942/tests/samples/gfx942",
}


class InternalError(Exception):
    """The checker caught an error of its own: the kernel is Unknown for a reason that is none."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader: its name, valid files, the call, and the number of inputs for each second of a campaign's share."""

    name: str
    seeds: tuple[bytes, ...]
    read: Read
    weight: int
    json: bool = False


@cache
def readers() -> Mapping[str, Reader]:
    """Return the readers by name."""
    from bitwise_core.descriptors import AttentionDesc, AttentionGradientDesc, GEMMDesc, ReductionDesc
    from bitwise_core.ir import text as tree_text
    from bitwise_core.report.expected_classes import ExpectedClasses
    from bitwise_pytest.golden_file import GoldenKernels
    from bitwise_torch.locks import Lock
    from bitwise_torch.locks.shape_file import read_problems
    from bitwise_torch.receipts import Receipt

    descriptors, trees, lock = _descriptor_texts(), _tree_texts(), _lock()
    products = (b"256 512 1024 bf16 NN\n1x2x3 # one\n",)
    reductions = tuple(each.to_text().encode() for each in _reductions())
    attention = (_attention().to_text().encode(),)
    gradients = (_attention_gradient().to_text().encode(),)
    documents = tuple(_descriptor(each).to_json().encode() for each in descriptors)
    manifests = tuple(path.read_bytes() for path in sorted(SAMPLES[".ptx"].glob("*/manifest.json")))
    small = tuple(each for each in manifests if b"gemm" not in each)
    return {
        each.name: each
        for each in (
            Reader("manifest", manifests, _manifest, 40, json=True),
            Reader("tensor contents", _arrays(), _tensor_contents, 20),
            Reader("buffers", _buffer_files(), _buffers, 10),
            Reader("ptx", _texts(".ptx"), _parse("sm_90", "a.ptx"), 20),
            Reader("amdgcn", _texts(".amdgcn"), _parse("gfx942", "a.amdgcn"), 20),
            Reader("ptx folder", _texts(".ptx", "row_sum"), _folder(".ptx"), 2),
            Reader("amdgcn folder", _texts(".amdgcn", "row_sum"), _folder(".amdgcn"), 2),
            Reader("manifest of a folder", small, _folder_of_manifest, 2, json=True),
            Reader("gemm descriptor", descriptors, lambda data, _: _check_text(GEMMDesc, data), 60),
            Reader("gemm descriptor in JSON", documents, lambda data, _: _check_json(GEMMDesc, data), 60, json=True),
            Reader("reduction descriptor", reductions, lambda data, _: _check_text(ReductionDesc, data), 20),
            Reader("attention descriptor", attention, lambda data, _: _check_text(AttentionDesc, data), 20),
            Reader("attention gradient", gradients, lambda data, _: _check_text(AttentionGradientDesc, data), 20),
            Reader("tree", trees, lambda data, _: _ignore(tree_text.read(_text(data))), 60),
            Reader("lock", (lock,), lambda data, _: _ignore(Lock.from_text(_text(data))), 60, json=True),
            Reader("receipt", (_receipt(),), lambda data, _: _ignore(Receipt.from_text(_text(data))), 60, json=True),
            Reader("heuristic answers", (_answers(),), _file("a.json", _read_answers), 60, json=True),
            Reader("compressed answers", (lzma.compress(_answers()),), _file("a.json.xz", _read_answers), 10),
            Reader("certificate", (_answers(),), _file("a.json", _certificate), 30, json=True),
            Reader("shapes of an audit", (_SHAPES,), _file("shapes.txt", _read_shapes), 40),
            Reader("model config", (_CONFIG,), _file("config.json", _model), 60, json=True),
            Reader("products", products, _file("a.txt", lambda path: list(read_problems(path))), 60),
            Reader("cached result", _entries(), _cached, 20),
            Reader("tuned schedules", (_SCHEDULES,), _schedules, 40, json=True),
            Reader("recorded queries", (_QUERIES,), _recorded_queries("cublas-s.json"), 30, json=True),
            Reader("compressed queries", (lzma.compress(_LINES),), _recorded_queries("cublas-s.jsonl.xz"), 10),
            Reader("expected classes", (_CLASSES,), _file("classes.json", ExpectedClasses.read), 20, json=True),
            Reader("golden kernels", (_golden(),), _file("golden.json", GoldenKernels.read), 20, json=True),
            Reader("logic file of rocBLAS", (_logic_file(),), _file("a.yaml", _read_logic_file), 20),
        )
    }  # fmt: skip


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _ignore(result: object) -> None:
    """A result is not examined: the reader returned."""


def _check_text(kind: Any, data: bytes) -> None:
    """Read a descriptor's text; what is read is written as it would be read again."""
    found = kind.from_text(_text(data))
    assert kind.from_text(found.to_text()) == found, "a descriptor is not read as it is written"


def _check_json(kind: Any, data: bytes) -> None:
    found = kind.from_json(_text(data))
    assert kind.from_json(found.to_json()) == found, "a descriptor is not read as it is written"


def _file(name: str, read: Callable[[Path], object]) -> Read:
    def run(data: bytes, folder: Path) -> None:
        (folder / name).write_bytes(data)
        read(folder / name)

    return run


def _texts(extension: str, sample: str = "*") -> tuple[bytes, ...]:
    found = sorted(SAMPLES[extension].glob(f"{sample}/*{extension}"), key=lambda path: path.stat().st_size)
    return tuple(path.read_bytes() for path in found[:12])


def _manifest(data: bytes, folder: Path) -> None:
    from bitwise_core.checker.kernel_files import load_manifest

    (folder / "manifest.json").write_bytes(data)
    for launch in load_manifest(folder / "manifest.json").kernels:
        for argument in launch.args:
            argument.short()


def _arrays() -> tuple[bytes, ...]:
    import io

    import numpy as np

    found = []
    for array in (np.arange(8, dtype=np.int32), np.ones((2, 3), np.float32), np.zeros(4, bool)):
        file = io.BytesIO()
        np.save(file, array)
        found.append(file.getvalue())
    return tuple(found)


def _tensor_contents(data: bytes, folder: Path) -> None:
    from bitwise_core.execution.launch import read_manifest

    (folder / "t.npy").write_bytes(data)
    (folder / "manifest.json").write_text(
        '{"kernels": [{"file": "a.ptx", "grid": [1], "args": [{"buffer": "T", "dtype": "i32", "values": "t.npy"}]}]}'
    )
    read_manifest(folder / "manifest.json")


def _buffer_files() -> tuple[bytes, ...]:
    import io

    import numpy as np

    found = []
    for source, target in ((np.ones(7200, np.float16), np.zeros(24, np.float32)),
                           (np.arange(7200, dtype=np.uint16), np.zeros(24, np.uint32))):  # fmt: skip
        for write in (np.savez, np.savez_compressed):
            file = io.BytesIO()
            write(file, source=source, target=target)
            found.append(file.getvalue())
    return tuple(found)


def _buffers(data: bytes, folder: Path) -> None:
    from bitwise_core.cli.buffer_files import read_buffers
    from bitwise_core.execution.launch import read_manifest

    launch = read_manifest(SAMPLES[".ptx"] / "row_sum" / "manifest.json").kernels[0]
    (folder / "a.npz").write_bytes(data)
    read_buffers(folder / "a.npz", launch)


def _parse(architecture: str, name: str) -> Read:
    def run(data: bytes, folder: Path) -> None:
        from bitwise_core.checker.kernel_files import read_text
        from bitwise_core.plugins import registry

        (folder / name).write_bytes(data)
        registry.default().arch(architecture).parse(read_text(folder / name), name)

    return run


def _folder(extension: str) -> Read:
    """Partition a folder with the changed text of a kernel and the launch of the sample `row_sum`."""

    def run(data: bytes, folder: Path) -> None:
        sample = SAMPLES[extension] / "row_sum"
        (folder / f"a{extension}").write_bytes(data)
        manifest = json.loads((sample / "manifest.json").read_text())
        launch = {key: value for key, value in manifest["kernels"][0].items() if key != "entry"}
        (folder / "manifest.json").write_text(json.dumps({"kernels": [{**launch, "file": f"a{extension}"}]}))
        _partition(folder)

    return run


def _folder_of_manifest(data: bytes, folder: Path) -> None:
    for path in SAMPLES[".ptx"].glob("*/*"):
        if path.suffix in (".ptx", ".npy") and "gemm" not in path.name:
            shutil.copy(path, folder / path.name)
    (folder / "manifest.json").write_bytes(data)
    _partition(folder)


def _partition(folder: Path) -> None:
    import bitwise_core as bitwise

    found = bitwise.partition(folder, workers=1, cache=False, time_limit=5, audit_contraction=False)
    for name, reason in found.unknown.items():
        if "internal error" in reason:
            raise InternalError(f"{name}: {reason}")


def _descriptor(text: bytes) -> Any:
    from bitwise_core.descriptors import GEMMDesc

    return GEMMDesc.from_text(text.decode())


def _descriptor_texts() -> tuple[bytes, ...]:
    from bitwise_core.descriptors import Instruction, per_mma, single_pass, split_k

    wgmma = Instruction(architecture="sm_90", family="wgmma", k=16)
    products = (
        single_pass(1024, "fp16", wgmma), split_k(4096, "bf16", wgmma, slices=4, tile=64),
        per_mma(1000, "fp16", wgmma, k_loop_step=32), single_pass(777, "bf16", wgmma, output_dtype="fp32", block=128),
    )  # fmt: skip
    return tuple(each.to_text().encode() for each in products)


def _reductions() -> list[Any]:
    from bitwise_core.descriptors import Fold, ReductionDesc

    tree = [Fold(stride=stride) for stride in (32, 16, 8, 4, 2, 1)]
    return [
        ReductionDesc(length=64, dtype="fp16", folds=tuple(tree)),
        ReductionDesc(length=1000, dtype="bf16", folds=(Fold(stride=64, count=16), *tree), padding="zero"),
        ReductionDesc(length=64, dtype="fp32", folds=(Fold(stride=8, count=8, start="zero"), *tree[3:])),
    ]


def _attention() -> Any:
    from bitwise_core.descriptors import AttentionDesc, Instruction, single_pass

    wgmma = Instruction(architecture="sm_90", family="wgmma", k=16)
    return AttentionDesc(
        key_block=64, scores=single_pass(128, "fp16", wgmma, output_dtype="fp32"), score_scale=0.125,
        row_sum=_reductions()[0].model_copy(update={"dtype": "fp32"}), probabilities_dtype="fp16",
        values=single_pass(64, "fp16", wgmma, output_dtype="fp32"), exponential="ex2.approx",
    )  # fmt: skip


def _attention_gradient() -> Any:
    from bitwise_core.descriptors import AttentionGradientDesc, Fold, ReductionDesc

    forward = _attention()
    products = ReductionDesc(
        length=128, dtype="fp32", folds=tuple(Fold(stride=stride) for stride in (64, 32, 16, 8, 4, 2, 1))
    )
    return AttentionGradientDesc(
        dtype="fp16", scores=forward.scores, score_scale=0.125, exponential="ex2.approx", slopes=forward.scores,
        row_products=products, unit=forward.scores.instruction, scale=0.125,
    )  # fmt: skip


def _tree_texts() -> tuple[bytes, ...]:
    from bitwise_core.descriptors.evaluation import gemm_tree
    from bitwise_core.ir import text as tree_text

    small = b"gemm(k=40 left_dtype=fp16 right_dtype=fp16 output_dtype=fp16 path=matrix instruction=instruction(" \
        b"architecture=sm_90 family=wgmma k=16) instruction_k=16)"  # fmt: skip
    return (tree_text.write(gemm_tree(_descriptor(small), 0, 0)).encode(),)


def _lock() -> bytes:
    from bitwise_core.descriptors.problem import GEMMProblem
    from bitwise_torch.locks import lock_of

    texts = [_descriptor(each) for each in _descriptor_texts()[:2]]
    findings: list[Any] = [
        (GEMMProblem(m=4, n=8, k=each.k, a=each.left_dtype, b=each.right_dtype, out=each.output_dtype), each)
        for each in texts
    ]
    return lock_of(findings, {"library": "a library", "device": "a device"}).to_text().encode()


def _receipt() -> bytes:
    from bitwise_torch.locks import Lock
    from bitwise_torch.receipts import receipt_of
    from bitwise_torch.receipts.receipt_file import Environment, Package

    where = Environment(packages={"a": Package(version="1")}, python="3.12", machine="Linux", device={"device": "a"})
    return receipt_of(Lock.from_text(_lock().decode()), {"readers.py": Path(__file__)}, where).to_text().encode()


_CONFIG = (
    b'{"model_type": "deepseek_v3", "dtype": "bfloat16", "hidden_size": 64, "intermediate_size": 128, '
    b'"num_attention_heads": 4, "vocab_size": 100, "q_lora_rank": null, "kv_lora_rank": 16, "v_head_dim": 8, '
    b'"qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "n_routed_experts": 8, "moe_intermediate_size": 32, '
    b'"attention_bias": true}'
)


def _answers() -> bytes:
    from bitwise_cublas_profiles.invariance.answers import Answers, Key, Run, to_text
    from bitwise_cublas_profiles.invariance.products import Product
    from bitwise_cublas_profiles.invariance.settings import Settings
    from bitwise_cublas_profiles.query import Answer, Configuration

    one = Answer(Configuration(66, 0, 35, 2, 2, 0, 0, 0, 0), 4096)
    runs = (Run(1, 3, one), Run(4, 4, None), Run(5, 64, one))
    keys = [Key.of(Product(8, k).query(1, Settings().pytorch)) for k in (64, 128)]
    origin = {"library": "13.1.0", "capability": "9.0", "device": "a device"}
    return to_text(Answers(origin, dict.fromkeys(keys, runs))).encode()


def _read_answers(path: Path) -> None:
    """Read answers; what is read is written as it would be read again."""
    from bitwise_cublas_profiles.invariance.answers import from_text, read, to_text
    from bitwise_cublas_profiles.query import CublasError

    try:
        found = read(path)
    except CublasError as error:
        raise InputError(str(error)) from None
    assert from_text(to_text(found), "a.json") == found, "answers are not read as they are written"


def _certificate(path: Path) -> None:
    """Certify a product from answers."""
    from bitwise_cublas_profiles.invariance.command import Source, certified
    from bitwise_cublas_profiles.invariance.products import Product
    from bitwise_cublas_profiles.invariance.settings import Settings
    from bitwise_cublas_profiles.query import CublasError

    try:
        certified([Product(8, 64)], Settings(), Source(path), 64)
    except CublasError as error:
        raise InputError(str(error)) from None


_SHAPES = b"128 256 512\n64x64x64 bf16 # a comment\n\n1, 4096, 4096, fp32\n"


def _read_shapes(path: Path) -> None:
    from bitwise_cublas_profiles.audit import read_shapes
    from bitwise_cublas_profiles.query import CublasError

    try:
        _ignore(read_shapes(path))
    except CublasError as error:
        raise InputError(str(error)) from None


def _model(path: Path) -> None:
    from bitwise_cublas_profiles.invariance.model_products import model_products, read_config
    from bitwise_cublas_profiles.query import CublasError

    try:
        _ignore(model_products(read_config(path), "config.json", fused=True, parts=2))
    except CublasError as error:
        raise InputError(str(error)) from None


def _entries() -> tuple[bytes, ...]:
    import tempfile

    from bitwise_core.caching.entry_files import EntryFolder

    with tempfile.TemporaryDirectory() as folder:
        EntryFolder(Path(folder)).write(KEY, b"content")
        return tuple(path.read_bytes() for path in Path(folder).rglob("*") if path.is_file())


def _cached(data: bytes, folder: Path) -> None:
    from bitwise_core.caching.entry_files import EntryFolder

    entries = EntryFolder(folder / "cache")
    entries.write(KEY, b"content")
    (path,) = (each for each in (folder / "cache").rglob("*") if each.is_file())
    path.write_bytes(data)
    path.chmod(0o600)
    assert entries.read(KEY) in (None, b"content"), "a damaged result is recalled"
    shutil.rmtree(folder / "cache")


_SCHEDULES = b'{"a key": {"block_m": 64, "block_n": 128, "warps": 4, "tma": true}, "other": {"block_m": 8}}'


def _schedules(data: bytes, folder: Path) -> None:
    from bitwise_nvidia_sm90.gemm import measured_schedules

    (folder / "schedules.json").write_bytes(data)
    measured_schedules._load_file.cache_clear()
    measured_schedules._load_file(folder / "schedules.json")
    for each in measured_schedules._tuned.values():
        assert type(each.block_m) is int, "a field has a value of another type"
    measured_schedules._tuned.clear()


_QUERIES = (
    b'{"gpu": "a device", "capability": "9.0", "library": "13.1.0", "columns": ["number", "m", "n", "k", "a", '
    b'"transposes", "c", "algorithm", "tile", "stages", "split_k", "reduction", "custom", "cluster_shape"], '
    b'"rows": [[0,128,128,11528,"fp16","NN","fp16",66,10,35,9,2,1,8]]}'
)
_LINES = _QUERIES[: _QUERIES.index(b', "rows"')] + b"}\n" + _QUERIES[_QUERIES.index(b"[[") + 1 : -2] + b"\n"


def _recorded_queries(name: str) -> Read:
    """Explain the product of the recorded query from a folder with this record."""

    def run(data: bytes, folder: Path) -> None:
        from bitwise_core.descriptors.problem import GEMMProblem
        from bitwise_core.plugins.profiles import NotCovered
        from bitwise_cublas_profiles import profile
        from bitwise_cublas_profiles.explanation import explain

        (folder / name).write_bytes(data)
        problem = GEMMProblem(m=128, n=128, k=11528, a="fp16", b="fp16", out="fp16")
        try:
            explain(profile.profile("13.1", "9.0"), problem, None, folder)
        except NotCovered as error:
            raise InputError(str(error)) from None

    return run


def _logic_file() -> bytes:
    """A logic file with one solution, written by the inverse of the reader that the reader's tests use."""
    from bitwise_rocblas_profiles.tables import bundled

    path = ROOT / "plugins/rocblas_profiles/tests/logic_writer.py"
    loaded = spec_from_file_location("logic_writer", path)
    assert loaded is not None
    assert loaded.loader is not None
    writer = module_from_spec(loaded)
    loaded.loader.exec_module(writer)
    file = bundled()[1].files[0]
    rows = tuple(replace(row, solution=0) for row in file.rows[:2])
    return str(writer.text_of(replace(file, solutions=file.solutions[:1], rows=rows))).encode()


def _read_logic_file(path: Path) -> None:
    from bitwise_rocblas_profiles.errors import RocblasError
    from bitwise_rocblas_profiles.logic_files import read_logic_file

    try:
        read_logic_file(path)
    except RocblasError as error:
        raise InputError(str(error)) from None


_CLASSES = b'{"schema": 1, "scope": "launch", "classes": [["a.ptx", "b.ptx"], ["c.ptx"]]}'


def _golden() -> bytes:
    from bitwise_core import Launch, Source
    from bitwise_pytest.golden_file import SCHEMA, record_of

    sources = {"a": Source("a", "a text", Launch(file="a", grid=(2, 1, 1))), "b": Source("b", "other", None, "entry")}
    kernels = {name: record_of(each) for name, each in sources.items()}
    return json.dumps({"schema": SCHEMA, "kernels": kernels}).encode()
