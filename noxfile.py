"""One session for each job.  `nox -l` lists the sessions, `nox -s NAME` runs one.

`nox -R -s NAME` runs a session again without installing anything.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["tests"]
# Debian ships ensurepip in a separate package.  virtualenv, a dependency of nox, contains an installer.
nox.options.default_venv_backend = "venv" if importlib.util.find_spec("ensurepip") else "virtualenv"

ROOT = Path(__file__).parent
GROUPS = nox.project.load_toml("pyproject.toml")

# In dependency order.
DISTRIBUTIONS = [
    "core",
    "runtime",
    "plugins/nvidia_ptx",
    "plugins/nvidia_earlier",
    "plugins/nvidia_sm90",
    "plugins/nvidia_sm100",
    "plugins/nvidia_sm120",
    "plugins/cublas_profiles",
    "plugins/nvidia",
    "plugins/amd_gfx942",
    "plugins/rocblas_profiles",
    "plugins/amd",
    "compiler",
    "pytest_plugin",
    "conformance",
    "examples/toy_arch",
    "bench",
]

# bitwise-bench is not published.
PUBLISHED = [folder for folder in DISTRIBUTIONS if folder != "bench"]

SAMPLES = ROOT / "plugins" / "nvidia_sm90" / "tests" / "samples"
AMD_SAMPLES = ROOT / "plugins" / "amd_gfx942" / "tests" / "samples"

# Expected values of tests and the demonstration are those of this version, which compiles without a GPU and torch.
TRITON = "triton==3.6.0; sys_platform == 'linux'"

# A small wheel.  Without ROCm it can be imported, and its functions report that no library was found.
HIP = "hip-python>=6.2; sys_platform == 'linux'"

# Small wheels.  Without a GPU's driver they can be imported.
CUDA = ("cuda-bindings>=12.8; sys_platform == 'linux'", "cuda-pathfinder>=1.3; sys_platform == 'linux'")


def group(name: str) -> list[str]:
    """Return the requirements of a dependency group of the workspace."""
    return list(nox.project.dependency_groups(GROUPS, name))


def install_workspace(session: nox.Session, *requirements: str, options: tuple[str, ...] = ()) -> None:
    """Install every distribution of this repository, editable, with its dependencies and `requirements`.

    `options` are those of pip.
    """
    session.install(*options, "hatch-vcs>=0.5", "hatchling>=1.26", "editables>=0.5", *requirements)
    editable = [part for folder in DISTRIBUTIONS for part in ("-e", f"./{folder}")]
    session.install(*options, "--no-build-isolation", *editable)


def install_triton(session: nox.Session, *more: str) -> None:
    """Install the pinned Triton and `more` without dependencies, so that torch and a toolkit are never installed.

    `more` may begin with options of pip.
    """
    session.install("--no-deps", *more, TRITON)


def requirements_of(folder: str) -> dict[str, str]:
    """Return the dependencies of a distribution as written, by name."""
    listed = nox.project.load_toml(f"{folder}/pyproject.toml")["project"].get("dependencies", [])
    return {re.split(r"[^\w.-]", each, maxsplit=1)[0]: each for each in listed}


def requirements_of_others(folders: list[str]) -> list[str]:
    """Return the dependencies of distributions that are none of this repository."""
    own = {nox.project.load_toml(f"{folder}/pyproject.toml")["project"]["name"] for folder in DISTRIBUTIONS}
    named = (each for folder in folders for each in requirements_of(folder).items())
    return sorted({requirement for name, requirement in named if name not in own})


@nox.session
def demo(session: nox.Session) -> None:
    """Compile the configurations of sample kernels and partition them; no GPU is needed."""
    install_workspace(session)
    install_triton(session)
    session.run("python", "-m", "bitwise_bench.demo", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests of every distribution."""
    # Most modules of the dependencies are never imported.
    install_workspace(session, *group("test"), options=("--no-compile",))
    install_triton(session, "--no-compile", *CUDA)
    # The tests start some hundred processes, which would compile every module again, and two run at a time.
    environment = {"PYTHONDONTWRITEBYTECODE": "", "OPENBLAS_NUM_THREADS": "1"}
    session.run("python", "-m", "pytest", "-n", "2", "--dist", "worksteal", *session.posargs, env=environment)


@nox.session
def exhaustive(session: nox.Session) -> None:
    """Run the cases that the session `tests` leaves out, since its cases have all pairs of their values."""
    install_workspace(session, *group("test"))
    install_triton(session, *CUDA)
    chosen, environment = "exhaustive or hypothesis", {"BITWISE_EXHAUSTIVE": "1", "OPENBLAS_NUM_THREADS": "1"}
    arguments = ("-n", "2", "--dist", "worksteal", "-m", chosen, *session.posargs)
    session.run("python", "-m", "pytest", *arguments, env=environment)


@nox.session
def proofs(session: nox.Session) -> None:
    """Prove the canonical rules again; `-- --mutations` breaks every condition and sees the proof fail."""
    install_workspace(session, *group("proofs"))
    install_triton(session)
    session.run("python", "-m", "bitwise_bench.proofs", "--again", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, imports and formatting."""
    session.install(*group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of every distribution with mypy in strict mode."""
    # mypy finds the distributions of this repository through `mypy_path`.
    session.install("--no-compile", *group("types"), *requirements_of_others(DISTRIBUTIONS))
    sources = [str(path.relative_to(ROOT)) for path in map(source_folder, DISTRIBUTIONS) if path.is_dir()]
    session.run("mypy", *sources, "tests", "noxfile.py")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site into build/site; a warning, a broken link and a link to another host's file fail.

    `-- --serve` shows it on this machine and follows changes.
    """
    session.install(*group("docs"))
    # The notice is about releases of MkDocs that this repository does not use.
    environment = {"PYTHONPATH": "bench/src", "NO_MKDOCS_2_WARNING": "1"}
    if "--serve" in session.posargs:
        session.run("mkdocs", "serve", env=environment)
        return
    site = ROOT / "build" / "site"
    session.run("mkdocs", "build", "--strict", "--site-dir", str(site), env=environment)
    session.run("python", "-m", "bitwise_bench.documentation.foreign_requests", str(site), env=environment)


def source_folder(distribution: str) -> Path:
    """Return the folder of a distribution's package, which does not exist for a distribution without code."""
    return ROOT / distribution / "src"


@nox.session
def conformance(session: nox.Session) -> None:
    """Run the conformance suite on every plugin of this repository, with more mutations than the session `tests`."""
    install_workspace(session, *group("test"))
    install_triton(session)
    modules = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("*/*/tests/test_conformance.py"))
    environment = {"BITWISE_CONFORMANCE_MUTATIONS": "100"}
    session.run("python", "-m", "pytest", "-n", "2", *modules, *session.posargs, env=environment)


@nox.session
def build(session: nox.Session) -> None:
    """Build every published distribution into dist/: the source archive, and the wheel from that archive."""
    session.install(*group("build"))
    for archive in (ROOT / "dist").glob("bitwise_*"):
        archive.unlink()
    for folder in PUBLISHED:
        session.run("python", "-m", "build", "--no-isolation", "--outdir", "dist", folder, silent=True)


def closure(name: str, folders: dict[str, str]) -> list[str]:
    """Return a distribution of this repository and those of this repository that it depends on."""
    found = [name]
    for each in found:
        found += [other for other in requirements_of(folders[each]) if other in folders and other not in found]
    return found


# Imports every module of a package except kernels, which only a compiler imports, and modules that run when imported.
IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not {"kernels", "samples"} & set(module.name.split(".")[:-1]) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""


def import_each_wheel_alone(session: nox.Session, folder: Path) -> None:
    """Import every module of each wheel where only the wheels that it declares are present, and no torch or Triton."""
    folders = {
        nox.project.load_toml(f"{each}/pyproject.toml")["project"]["name"]: each
        for each in PUBLISHED
    }  # fmt: skip
    session.install(*requirements_of_others(PUBLISHED))
    for name, source in folders.items():
        target = folder / name
        session.install(
            "--no-deps", "--no-index", "--find-links", "dist", "--target", str(target), *closure(name, folders)
        )
        packages = [path.name for path in source_folder(source).glob("*") if path.is_dir()]
        session.run("python", "-c", IMPORT_ALL, *packages, env={"PYTHONPATH": str(target)})


@nox.session(requires=["build"], reuse_venv=False)
def install(session: nox.Session) -> None:
    """Install the built wheels into a clean environment: each alone, then for a user and for a plugin author.

    The plugins of one vendor are installed and tested first, then those of both.
    """
    folder = Path(session.create_tmp())
    import_each_wheel_alone(session, folder / "alone")
    session.install("--find-links", "dist", "bitwise-core[amd]")
    with session.chdir(folder):
        session.run("bitwise", "doctor")
        session.run("bitwise", "partition", str(AMD_SAMPLES / "gfx942" / "row_sum"))
    session.install("--find-links", "dist", "bitwise-core[nvidia]")
    with session.chdir(folder):
        session.run("bitwise", "plugins", "--json")
        session.run("bitwise", "partition", str(SAMPLES / "sm_90" / "row_sum"), "--no-contraction-audit")
    session.install("--find-links", "dist", "bitwise-toy[test]")
    shutil.copytree(ROOT / "examples" / "toy_arch" / "tests", folder / "tests", dirs_exist_ok=True)
    with session.chdir(folder):
        session.run("bitwise", "plugins")
        session.run("python", "-m", "pytest", "-q", "--rootdir", ".", "--confcutdir", ".", "tests")


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each archive of this repository in a folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("bitwise_*"))}


@nox.session(requires=["build"], reuse_venv=False)
def release(session: nox.Session) -> None:
    """Check what would be published: two builds are equal, metadata, the wheels in a clean environment, the change log.

    Nothing is uploaded.  The version is that of the last tag, with the number of commits since then.
    """
    session.install("--find-links", "dist", "bitwise-core[nvidia,amd,triton]")
    install_triton(session)
    with session.chdir(session.create_tmp()):
        session.run("bitwise", "--version")
        session.run("bitwise", "doctor")
        # The demonstration is not published; what it imports is.
        session.run("python", "-m", "bitwise_bench.demo", env={"PYTHONPATH": str(ROOT / "bench" / "src")})
    session.install(*group("build"), *group("release"))
    session.run("twine", "check", "--strict", *map(str, sorted((ROOT / "dist").glob("bitwise_*"))))
    again = Path(session.create_tmp()) / "again"
    shutil.rmtree(again, ignore_errors=True)
    for folder in PUBLISHED:
        session.run("python", "-m", "build", "--no-isolation", "--outdir", str(again), folder, silent=True)
    first, second = digests(ROOT / "dist"), digests(again)
    if first != second:
        session.error(f"two builds differ: {sorted({*first.items()} ^ {*second.items()})}")
    (core,) = (ROOT / "dist").glob("bitwise_core-*.whl")
    version = core.name.split("-")[1]
    log = str(session.run("towncrier", "build", "--draft", "--version", version, silent=True))
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "CHANGELOG.md").write_text(log[log.index("## ") :], encoding="utf-8")
    session.log(f"{len(first)} archives of version {version} are reproducible; the change log is in build/CHANGELOG.md")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure precision and time of the verdicts, and the throughput of matrix units evaluated on a CPU."""
    install_workspace(session)
    install_triton(session)
    session.run("python", "-m", "bitwise_bench.matrix_units.throughput")
    session.run("python", "-m", "bitwise_bench.readings.precision", *session.posargs)


@nox.session
def adversary(session: nox.Session) -> None:
    """Search for kernels that are called Equal though they return different bytes; `-- --seconds 600 --jobs 2`."""
    install_workspace(session)
    install_triton(session)
    session.run("python", "-m", "bitwise_bench.adversary", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Give malformed files to every reader of files; `-- --seconds 600 --jobs 2`."""
    install_workspace(session)
    install_triton(session)
    session.run("python", "-m", "bitwise_bench.fuzzing", *session.posargs)


def need_gpu_packages(session: nox.Session, *more: str) -> None:
    """Fail the session unless the interpreter that runs nox has torch, Triton and more packages."""
    names = ("torch", "triton", *more)
    find = f"import importlib.util as u; print(*[n for n in {names} if u.find_spec(n) is None])"
    missing = str(session.run("python", "-c", find, silent=True, log=False)).split()
    if missing:
        session.error(f"the interpreter that runs nox has no {' and no '.join(missing)}; install it there first")


@nox.session(name="gpu-sm90", venv_params=["--system-site-packages"])
def gpu_sm90(session: nox.Session) -> None:
    """Compare launchers, verdicts and kernels in clusters with the bytes of an sm_90 GPU.

    `-- --families gemm` selects kernels of the corpus.

    Uses torch, built for the machine's driver, Triton and cuda-bindings of the interpreter that runs nox.
    """
    need_gpu_packages(session, "cuda")
    install_workspace(session)
    # Warnings of torch and of the driver are not errors of this repository.
    suite = "plugins/nvidia_sm90/tests/test_conformance.py"
    session.run("python", "-m", "pytest", "-rs", "-W", "default", suite, "-k", "launcher")
    record = str(Path(session.create_tmp()) / "bytes.json")
    session.run("python", "-m", "bitwise_bench.gpu.recorder", "--out", record, *session.posargs)
    session.run("python", "-m", "bitwise_bench.readings.precision", "--records", record, *session.posargs)
    clusters = str(Path(session.create_tmp()) / "clusters.json")
    session.run("python", "-m", "bitwise_bench.clusters.recorder", "--out", clusters)
    # Ten minutes of random products against cuBLASLt.  A run continues where the previous run of its folder ended.
    sweep = str(Path(session.create_tmp()) / "sweep.jsonl")
    session.run("python", "-m", "bitwise_bench.cublas.sweeps.sweep", "--out", sweep, "--seconds", "600")


@nox.session(name="gpu-sm100", venv_params=["--system-site-packages"])
def gpu_sm100(session: nox.Session) -> None:
    """Compare rows, verdicts and a lock with the bytes of an sm_100 GPU; `-- --lock FOLDER` replays a lock.

    Every matrix row is probed, the corpus is run and compared with its classes, and the orders of cuBLASLt are
    surveyed. FOLDER holds `lock.json` and `bytes.json`, which `bitwise_bench.cublas.replays.cross_device_replay lock`
    wrote on another GPU.

    Uses torch, built for the machine's driver, Triton and cuda-bindings of the interpreter that runs nox.
    """
    need_gpu_packages(session, "cuda")
    install_workspace(session)
    place, given = Path(session.create_tmp()), list(session.posargs)
    lock = Path(given[given.index("--lock") + 1]) if "--lock" in given[:-1] else None
    target = ("--target", "sm_100")
    probes = ("--out", str(place / "probes.json"), "--results", str(place / "probes.npz"))
    # Published rows may be wrong: the session goes on, and shows which ones.
    session.run(
        "python", "-m", "bitwise_bench.matrix_units.probes", "--architecture", "sm_100", *probes, success_codes=[0, 1]
    )
    record = str(place / "bytes.json")
    session.run("python", "-m", "bitwise_bench.gpu.recorder", *target, "--out", record, success_codes=[0, 1])
    session.run("python", "-m", "bitwise_bench.readings.precision", *target, "--records", record)
    survey = str(place / "survey.jsonl")
    session.run("python", "-m", "bitwise_bench.cublas.orders.order_survey", "--out", survey, "--seconds", "300")
    if lock is not None:
        files = ("--lock", str(lock / "lock.json"), "--bytes", str(lock / "bytes.json"))
        replayed = str(place / "replay.json")
        session.run(
            "python", "-m", "bitwise_bench.cublas.replays.cross_device_replay", "replay", *files, "--out", replayed
        )


@nox.session(name="gpu-gfx942")
def gpu_gfx942(session: nox.Session) -> None:
    """Run the conformance suite on a gfx942: the launcher's bytes against the evaluation.  Needs ROCm.

    The session fails with a message that names what is missing: the GPU, ROCm or hip-python.
    """
    install_workspace(session, HIP, *group("test"))
    install_triton(session)
    find = "from bitwise_amd_gfx942.launcher import Products; print(Products().missing() or '')"
    missing = str(session.run("python", "-c", find, silent=True, log=False)).strip()
    if missing:
        session.error(f"the suite cannot run on a gfx942 here: {missing}")
    session.run("python", "-m", "pytest", "-rs", "plugins/amd_gfx942/tests/test_conformance.py", *session.posargs)


@nox.session(name="published-corpus", venv_params=["--system-site-packages"])
def published_corpus(session: nox.Session) -> None:
    """Compile, read and, on an sm_90 GPU, run the corpus in the published counts; `-- --rows table --seconds 540`.

    A run continues where the previous run of its folder ended.  Without a GPU: `-- --no-gpu`, also with
    `--target gfx942`.
    """
    install_workspace(session)
    if "--no-gpu" in session.posargs:
        install_triton(session)
    else:
        need_gpu_packages(session)
    folder = [] if "--records" in session.posargs else ["--records", "records/published-corpus"]
    session.run("python", "-m", "bitwise_bench.published_corpus", *folder, *session.posargs)


@nox.session(name="gpu-model-locks", venv_params=["--system-site-packages"])
def gpu_model_locks(session: nox.Session) -> None:
    """Record transformers in locks and replay them on an sm_90 GPU, with torch and transformers of nox's interpreter.

    `-- --replay --folder FOLDER --out FILE` replays the locks of a folder on another GPU.
    """
    need_gpu_packages(session, "cuda", "transformers")
    install_workspace(session)
    folder = Path(session.create_tmp())
    arguments = session.posargs or ["--out", str(folder / "locks.json"), "--folder", str(folder / "locks")]
    session.run("python", "-m", "bitwise_bench.models.model_locks", *arguments)


@nox.session(name="bench-locks", venv_params=["--system-site-packages"])
def bench_locks(session: nox.Session) -> None:
    """Measure the times of models under a lock beside the library's, on a GPU, with torch.compile and CUDA graphs.

    It uses torch and transformers of nox's interpreter.
    """
    need_gpu_packages(session, "cuda", "transformers")
    install_workspace(session)
    arguments = session.posargs or ["--out", "records/lock-costs-sm90-h200.json"]
    session.run("python", "-m", "bitwise_bench.models.lock_costs", *arguments)


@nox.session(name="gpu-train-equals-serve", venv_params=["--system-site-packages"])
def gpu_train_equals_serve(session: nox.Session) -> None:
    """Compare training and serving of transformers in the batch-invariant mode on an sm_90 GPU, byte for byte.

    It uses torch and transformers of nox's interpreter.
    """
    need_gpu_packages(session, "cuda", "transformers")
    install_workspace(session)
    arguments = session.posargs or ["--out", "records/train-equals-serve-sm90-h100.json"]
    session.run("python", "-m", "bitwise_bench.models.train_equals_serve", *arguments)


@nox.session(name="bench-mode", venv_params=["--system-site-packages"])
def bench_mode(session: nox.Session) -> None:
    """Measure the times of models and of operators of rows in the batch-invariant mode beside PyTorch's, on a GPU.

    It uses torch and transformers of nox's interpreter, and batch_invariant_ops where that is installed.
    """
    need_gpu_packages(session, "cuda", "transformers")
    install_workspace(session)
    arguments = session.posargs or ["--out", "records/mode-costs-sm90-h100.json"]
    session.run("python", "-m", "bitwise_bench.models.mode_costs", *arguments)


@nox.session(name="bench-attention", venv_params=["--system-site-packages"])
def bench_attention(session: nox.Session) -> None:
    """Compare the bytes of attention on a GPU and measure its times, with torch of the interpreter that runs nox."""
    need_gpu_packages(session)
    install_workspace(session)
    arguments = session.posargs or ["--out", "attention.json"]
    session.run("python", "-m", "bitwise_bench.attention", *arguments)


@nox.session(name="bench-reductions", venv_params=["--system-site-packages"])
def bench_reductions(session: nox.Session) -> None:
    """Measure the cost of pinned orders on a GPU, with torch and Triton of the interpreter that runs nox."""
    need_gpu_packages(session)
    install_workspace(session)
    record = "records/pinned-reductions-sm90-h100.json"
    # Few processes, since compile times are measured too.
    arguments = session.posargs or ["--out", record, "--layout", "both", "--workers", "4"]
    session.run("python", "-m", "bitwise_bench.pinned_reductions", *arguments, success_codes=[0, 1])
    if not session.posargs:
        session.run("python", "-m", "bitwise_bench.pinned_reductions", "--out", record, "--chart", record[:-4] + "svg")
