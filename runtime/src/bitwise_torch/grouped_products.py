"""Products of groups of matrices, torch._grouped_mm and torch._scaled_grouped_mm: calls, their keys, and their results.

The kernels that compute them do not depend on the shapes of the groups.  What a library computes for a group is a
function of the types, the scales and k, and the key of a call in a lock has one value of k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import DescriptorError, GEMMDesc
from bitwise_core.descriptors.problem import NAMES, Finish, FinishedGEMM, GEMMProblem
from bitwise_core.plugins.launchers import EpilogueLaunch
from bitwise_core.plugins.profiles import GroupedProfile, NotCovered
from bitwise_torch import many_products
from bitwise_torch.product_arguments import ProductError
from bitwise_torch.product_forms import Form, NotLockable, finished_product
from bitwise_torch.tensor_problems import problem_of

if TYPE_CHECKING:
    import torch

GROUPED = ("_grouped_mm", "_scaled_grouped_mm")
"""Operations of PyTorch that compute products of groups, in the dispatcher's namespace `aten`."""

_PARAMETERS = {
    "_grouped_mm": ("self", "mat2", "offs", "bias", "out_dtype"),
    "_scaled_grouped_mm": (
        "self", "mat2", "scale_a", "scale_b", "offs", "bias", "scale_result", "out_dtype", "use_fast_accum",
    ),
}  # fmt: skip
_ANY_LENGTH = 1
"""The k of the key of a call."""


@dataclass(frozen=True)
class GroupedCall:
    """The operands of a call; see `product_calls.grouped_mm`.  Raises ProductError for ones that do not fit."""

    a: torch.Tensor
    b: torch.Tensor
    offsets: torch.Tensor | None = None
    scale_a: torch.Tensor | None = None
    scale_b: torch.Tensor | None = None
    fast_accumulation: bool = False

    def __post_init__(self) -> None:
        a, b, axes = self.a, self.b, (self.a.dim(), self.b.dim())
        if (self.scale_a is None) != (self.scale_b is None):
            raise ProductError("give both of scale_a and scale_b, or neither")
        if not set(axes) <= {2, 3} or (self.offsets is None) != (axes == (3, 3)):
            raise ProductError(
                f"a has {axes[0]} axes and b has {axes[1]}: both have 2 or 3, and offsets unless both have 3"
            )
        if a.shape[-1] != b.shape[-2]:
            raise ProductError(f"{tuple(a.shape)} times {tuple(b.shape)}: the shapes do not match")

    @property
    def finish(self) -> Finish:
        """The finish of each group."""
        scales = self.scale_a is not None
        return Finish(scales="row" if scales else "none", fast_accumulation=self.fast_accumulation and scales)

    @property
    def key(self) -> GEMMProblem:
        """The problem under which a lock holds all calls of these types and this finish.  Raises ProductError."""
        names = [NAMES.get(str(each.dtype)) for each in (self.a, self.b)]
        if None in names:
            raise ProductError(f"groups of {self.a.dtype} and {self.b.dtype} are not supported")
        return GEMMProblem(
            m=1, n=1, k=_ANY_LENGTH, a=names[0], b=names[1], out="bf16", finish=self.finish, grouped=True
        )

    @property
    def adds_groups(self) -> bool:
        """Whether the groups divide k, so that each has a k of its own."""
        return bool(self.a.dim() == self.b.dim() == 2)

    def ends(self) -> list[int]:
        """Return the end of each group; this waits for the device."""
        return [0] * int(self.a.shape[0]) if self.offsets is None else [int(each) for each in self.offsets.tolist()]

    def launch_of(self, describe: Callable[[GEMMProblem], FinishedGEMM], out: torch.Tensor) -> EpilogueLaunch | None:
        """Return the launch that computed `out`, of the addresses of a, b, offsets and out; None for several."""
        desc = self._product_of_groups(describe)
        return None if desc is None else many_products.launch_of_groups(desc, self.a, self.b, self.offsets, out)

    def _result_of_one_launch(self, describe: Callable[[GEMMProblem], FinishedGEMM]) -> torch.Tensor | None:
        """Return the result where one launch computes all groups, without waiting for the device, else None."""
        import torch

        desc = self._product_of_groups(describe)
        launcher = None if desc is None else many_products.launcher_of(desc, self.a.device)
        if desc is None or launcher is None or self.offsets is None:
            return None
        a, b, groups = self.a, self.b, () if self.b.dim() == 3 else (int(self.offsets.shape[0]),)
        out = torch.empty((*groups, int(a.shape[0]), int(b.shape[-1])), dtype=torch.bfloat16, device=a.device)
        try:
            many_products.grouped(launcher, desc, a, b, self.offsets, out)
        except DescriptorError:
            return None
        return out

    def _product_of_groups(self, describe: Callable[[GEMMProblem], FinishedGEMM]) -> GEMMDesc | None:
        """Return the descriptor of each group as a product to bf16 for any k, None where steps or types differ.

        Groups are ranges of the rows of a, or of k, with ends of int32.
        """
        import torch

        a, b, ends = self.a, self.b, self.offsets
        plain = ends is not None and ends.dtype == torch.int32 and a.dim() == 2 and self.scale_a is None
        if not plain or 0 in a.shape or 0 in b.shape or a.is_neg() or b.is_neg():
            return None
        return as_product(describe(self._problem(int(a.shape[1]))))

    def _problem(self, k: int) -> GEMMProblem:
        fields = {name: getattr(self.key, name) for name in type(self.key).model_fields}
        return GEMMProblem(**(fields | {"k": k, "grouped": False}))

    def result(self, describe: Callable[[GEMMProblem], FinishedGEMM]) -> torch.Tensor:
        """Return the result, of which each group has the bits of its description.  Raises ProductError."""
        import torch

        found = self._result_of_one_launch(describe)
        if found is not None:
            return found
        a, b, finish, ends = self.a, self.b, self.finish, self.ends()
        axes = (a.dim(), b.dim())
        shape = (int(a.shape[-2]), int(b.shape[-1]))
        whole = axes in ((2, 3), (3, 2))
        out = torch.zeros(shape if whole else (len(ends), *shape), dtype=torch.bfloat16, device=a.device)
        for index, (left, right, target, where) in enumerate(_groups(a, b, out, ends, axes)):
            if 0 in left.shape or 0 in right.shape:
                continue
            plain = problem_of(left, right, torch.bfloat16)
            fields = {name: getattr(plain, name) for name in type(plain).model_fields} | {"finish": finish}
            operands: tuple[Any, ...] = ()
            if self.scale_a is not None and self.scale_b is not None:
                rows, columns = (
                    _scales_of(each, index, place, len(ends), group_axes)
                    for each, place, group_axes in (
                        (self.scale_a, where[0], axes[0]),
                        (self.scale_b, where[1], axes[1]),
                    )
                )
                operands = (rows[:, None].expand(target.shape), columns[None, :].expand(target.shape))
            desc = describe(GEMMProblem(**fields))
            target.copy_(finished_product(desc, Form(left, right, operands, plain)))
        return out


def grouped_call(name: str, arguments: Sequence[Any], options: dict[str, Any]) -> GroupedCall:
    """Return the call of an operation of GROUPED.  Raises NotLockable."""
    import torch

    given = {**dict(zip(_PARAMETERS[name], arguments, strict=False)), **options}
    for parameter, words in (("bias", "a bias"), ("scale_result", "a scale of the result")):
        if given.get(parameter) is not None:
            raise NotLockable(f"{words} of groups is not described")
    if given.get("out_dtype") not in (None, torch.bfloat16):
        raise NotLockable(f"groups with an output of {given['out_dtype']} are not described; those of bf16 are")
    try:
        call = GroupedCall(
            given["self"], given["mat2"], given.get("offs"), given.get("scale_a"), given.get("scale_b"),
            bool(given.get("use_fast_accum", False)),
        )  # fmt: skip
        call.key  # noqa: B018 - the types are supported
    except ProductError as error:
        raise NotLockable(str(error)) from None
    return call


def group_finding(profile: GroupedProfile, call: GroupedCall) -> FinishedGEMM | str:
    """Return what a library computes for the calls with a call's key, or the reason why they have no description."""
    key, device = call.key, call.a.device
    try:
        found = profile.describe_group(key, device=device)
        lengths = {int(call.a.shape[-1])}
        if call.adds_groups:
            ends = call.ends()
            lengths = {end - begin for begin, end in zip([0, *ends], ends, strict=False)} - {0}
        for k in sorted(lengths):
            if profile.describe_group(_of_length(key, k), device=device) != with_length(found, k):
                return f"the order of a group depends on k: that of {k} values is another one"
    except NotCovered as error:
        return str(error)
    return found


@lru_cache(maxsize=4096)
def as_product(found: FinishedGEMM) -> GEMMDesc | None:
    """Return a product whose only step rounds its sums of fp32 to bf16 as one descriptor, None for other steps.

    It is cached, since launches are, by identity.
    """
    (first, *rest) = found.steps.steps
    if rest or (first.name, first.dtype) != ("convert", "bf16") or found.product.output_dtype != "fp32":
        return None
    if found.block_scaling != "none" or found.widened_from is not None:
        return None
    fields = {name: getattr(found.product, name) for name in type(found.product).model_fields}
    return GEMMDesc(**(fields | {"output_dtype": "bf16"}))


@lru_cache(maxsize=4096)
def with_length(found: FinishedGEMM, k: int) -> FinishedGEMM:
    """Return the description of a group of k values from that of the key; cached, since launches are, by identity."""
    product = {name: getattr(found.product, name) for name in type(found.product).model_fields}
    fields = {name: getattr(found, name) for name in type(found).model_fields}
    return FinishedGEMM(**(fields | {"product": GEMMDesc(**(product | {"k": k}))}))


def _of_length(key: GEMMProblem, k: int) -> GEMMProblem:
    fields = {name: getattr(key, name) for name in type(key).model_fields}
    return GEMMProblem(**(fields | {"k": k, "grouped": False}))


def _groups(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, ends: list[int], axes: tuple[int, int]
) -> Iterator[tuple[Any, Any, Any, tuple[slice | None, slice | None]]]:
    """Yield the matrices of each group, its part of the output, and the parts of the scales of a and of b."""
    begin = 0
    for index, end in enumerate(ends):
        part = slice(begin, end)
        begin = end
        if axes == (2, 3):
            yield a[part], b[index], out[part], (part, None)
        elif axes == (3, 2):
            yield a[index], b[:, part], out[:, part], (None, part)
        elif axes == (2, 2):
            yield a[:, part], b[part], out[index], (None, None)
        else:
            yield a[index], b[index], out[index], (None, None)


def _scales_of(scales: torch.Tensor, index: int, part: slice | None, groups: int, axes: int) -> torch.Tensor:
    """Return the scales of a group: a part of all of them, or one of `groups` equal parts."""
    return scales.reshape(-1)[part] if part is not None and axes == 2 else scales.reshape(groups, -1)[index]
