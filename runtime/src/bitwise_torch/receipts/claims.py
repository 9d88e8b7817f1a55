"""The claims that follow from operators, kernels and the installed plugins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins import registry
from bitwise_torch.locks import Entry, LibraryOperator, PinnedAttention
from bitwise_torch.receipts.receipt_file import Claim, Kernel, Kind, Operator, Supported

ENVIRONMENT, WITHOUT, ORDER, ROWS, POSITIONS, COMPLETE, DROPPED, SAMPLED, UNSAMPLED, UNDETERMINED, ATTENTION = (
    "environment", "products.without-descriptor", "products.order", "products.rows", "products.rows-of-one-position",
    "products.complete", "products.dropped", "pytorch.sampled", "pytorch.without-sample",
    "pytorch.not-determined", "attention.pinned",
)  # fmt: skip
DESCRIBED: Mapping[Supported, str] = {
    "measured": "products.measured", "published": "products.published", "not asked": "products.not-asked",
}  # fmt: skip
"""The claims that the library computes a descriptor, by what that rests on."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Operators with the names of their claims, and all claims."""

    operators: tuple[Operator, ...]
    claims: tuple[Claim, ...]


def claims_of(
    entries: Iterable[tuple[Entry, Supported]], library: Sequence[LibraryOperator], kernels: Sequence[Kernel],
    attention: Sequence[PinnedAttention] | None = None,
) -> Claims:  # fmt: skip
    """Return the claims on the entries of a lock, on its calls of PyTorch, on its pinned attention, and on files.

    An entry is given with what its descriptor rests on.  The matrix units are those of the installed plugins.
    """
    units = registry.default().matrix_units
    operators = []
    for entry, support in entries:
        names = [DESCRIBED[support], *_names(entry.desc)] if entry.descriptor is not None else [WITHOUT]
        fields = {name: getattr(entry, name) for name in Entry.model_fields}
        operators.append(Operator(**fields, support=support, claims=tuple(names)))
    named = dict.fromkeys(name for each in operators for name in each.claims)
    made = [_environment()]
    made += [_unit(name, units.get(name.removeprefix("unit."))) for name in named if name.startswith("unit.")]
    made += [_PRODUCTS[name] for name in named if name in _PRODUCTS]
    made += [_PRODUCTS[name] for name in sorted({call_claim(each) for each in library})]
    made += [_PRODUCTS[ATTENTION]] if attention else []
    made += [_kernel(each) for each in kernels]
    return Claims(tuple(operators), tuple(made))


def call_claim(call: LibraryOperator) -> str:
    """Return the name of the claim on a call of PyTorch."""
    if call.undetermined is not None:
        return UNDETERMINED
    return SAMPLED if call.digests else UNSAMPLED


def _names(desc: GEMMDesc) -> list[str]:
    rotation = desc.iteration_rotation
    names = [ORDER, ROWS if rotation is None or rotation.axis != "rows" else POSITIONS]
    names.append(DROPPED if desc.k_dropped else COMPLETE)
    if desc.instruction is not None:
        names.append(f"unit.{desc.instruction_name}")
    return names


def _environment() -> Claim:
    return Claim(
        name=ENVIRONMENT, kind="assumed",
        statement="The run had the packages, the library, the driver, the device and the variables of the receipt.",
        scope="the run that the lock was recorded from",
        method="as the lock's provenance and the machine that wrote the receipt say",
        discharge="bitwise receipt verify RECEIPT, on the machine of the run",
    )  # fmt: skip


def _product(name: str, kind: Kind, statement: str, scope: str, method: str, discharge: str | None) -> Claim:
    return Claim(name=name, kind=kind, statement=statement, scope=scope, method=method, discharge=discharge)


_SUPPORT: Mapping[Supported, str] = {
    "measured": "rows of the library's profile that were measured on outputs, and the library's choice of a kernel",
    "published": "none: rows of the library's profile are published and not measured",
    "not asked": "none: the plugin of the library was not asked on the device whether its rows were measured",
}

_PRODUCTS = {each.name: each for each in (
    *(
        _product(
            name, "measured" if support == "measured" else "assumed",
            "The library's bits of the product are those of its descriptor.",
            "the recorded library, device and settings; operands of the problem's shapes, types and strides at "
            "addresses that are multiples of 256; not the payloads of NaNs", _SUPPORT[support],
            "bitwise receipt verify RECEIPT --ask, on the recorded device: the library's plugin describes each problem "
            "as before" + ("" if support == "measured" else "; bitwise lock apply runs the descriptor itself"),
        )
        for support, name in DESCRIBED.items()
    ),
    _product(
        WITHOUT, "assumed", "The library's bits of the product are the same in every run.",
        "the recorded library, device and settings",
        "none: the profile has no descriptor, for the reason that `declined` states",
        "measure a row for the configuration, and write the lock again",
    ),
    _product(
        ORDER, "proved",
        "The bits of an output element are a function of a row of A, a column of B and its elements of other operands.",
        "a product computed as its descriptor says",
        "the descriptor states every rounding and the order of every addition, and none depends on time or on threads",
        "bitwise receipt verify RECEIPT: the descriptor is parsed again",
    ),
    _product(
        ROWS, "proved", "That function is the same for every row of the output.",
        "a product computed as its descriptor says", "no field of the descriptor distinguishes rows of the output",
        "bitwise receipt verify RECEIPT: the descriptor is parsed again",
    ),
    _product(
        POSITIONS, "proved", "That function is the same for rows whose tiles have one number modulo the period.",
        "a product computed as its descriptor says",
        "the descriptor's iteration_rotation gives tiles of rows orders of their own",
        "bitwise receipt verify RECEIPT: the descriptor is parsed again",
    ),
    _product(
        COMPLETE, "proved", "Every value of k is part of the sum.", "a product computed as its descriptor says",
        "k_dropped is 0, and the cuts and the tail of the descriptor partition all of k",
        "bitwise receipt verify RECEIPT: the descriptor is parsed again",
    ),
    _product(
        DROPPED, "proved", "The last k_dropped values of k are not part of the sum.",
        "a product computed as its descriptor says", "k_dropped of the descriptor is not 0",
        "bitwise cublas audit M N K --run",
    ),
    _product(
        SAMPLED, "measured", "PyTorch's bits of the call are the same on all machines whose digests are equal.",
        "the call's shapes, types and strides; the drawn values of a sample",
        "equal SHA-256 of the outputs of a sample, in two runs on each machine", "bitwise lock check LOCK",
    ),
    _product(
        UNSAMPLED, "assumed", "PyTorch's bits of the call are the same in every run.",
        "the recorded machine", "none: there is no sample, for the reason that `reason` states", None,
    ),
    _product(
        UNDETERMINED, "assumed", "PyTorch's bits of the call are the same in every run.",
        "the recorded machine",
        "none: PyTorch's source says that the algorithm is not deterministic, and samples of few runs do not show it",
        'record the lock with attention="pinned"',
    ),
    _product(
        ATTENTION, "assumed", "The bits of attention are those of the descriptors of its heads.",
        "the types and widths of heads that `attention` lists; calls that the package served",
        "the package that recorded the lock computes the descriptors that it states",
        "bitwise lock check LOCK: the installed package states the same descriptors",
    ),
)}  # fmt: skip


def _unit(name: str, unit: MmaSpec | None) -> Claim:
    known = unit is not None and unit.status != "published only"
    if unit is None:
        method, discharge = "none: no installed plugin has the instruction", "install the architecture's plugin"
    else:
        method, discharge = f"{unit.status}; {unit.source}", "the conformance suite of the architecture's plugin"
    return Claim(
        name=name, kind="measured" if known else "assumed",
        statement="The matrix instruction returns the bits of its row.", scope="every element of its tile",
        method=method, discharge=discharge,
    )  # fmt: skip


def _kernel(kernel: Kernel) -> Claim:
    return Claim(
        name=f"file.{kernel.name}", kind="assumed", statement="The run used the file with this digest.",
        scope=f"{kernel.bytes} bytes", method="the file that was given when the receipt was written",
        discharge=f"bitwise receipt verify RECEIPT --file {kernel.name}=PATH",
    )  # fmt: skip
