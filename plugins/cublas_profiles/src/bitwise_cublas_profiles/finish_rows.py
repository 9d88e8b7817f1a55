"""The rows of a profile's tables `finishes` and `rectifiers`, by the kernel, the types, and what a finish adds."""

from __future__ import annotations

from bitwise_core.descriptors import Step
from bitwise_core.descriptors.problem import Finish
from bitwise_cublas_profiles.profile import Profile, Row, RowNotCovered
from bitwise_cublas_profiles.query import Configuration, GemmQuery


def finish_row(
    known: Profile, query: GemmQuery, configuration: Configuration, addend: str, finish: Finish
) -> Row | None:
    """The row of a configuration and a finish with this kind of addend, None where it was not measured."""
    for row in known.tables["finishes"]:
        if row["algorithm"] == configuration.algorithm and _applies(row, query, configuration, addend, finish):
            known.record_use("finishes", row)
            return row
    return None


def _applies(row: Row, query: GemmQuery, configuration: Configuration, addend: str, finish: Finish) -> bool:
    """Whether a row was measured for an addend, the number of slices, the types and the numbers of a finish.

    `sums` of a row is the type of the sums, fp32 where it is left out.
    `alpha` and `beta` of a row are `one` where it was measured with 1 only; of several rows the first applies.
    """
    return bool(
        row["addend"] == addend
        and row.get("sums", "fp32") == query.scale_type
        and row["sliced"] == (configuration.split_k > 1)
        and query.multiplied in row["dtypes"]
        and configuration.reduction in row.get("reductions", (configuration.reduction,))
        and configuration.custom in row.get("customs", (configuration.custom,))
        and (row.get("alpha") != "one" or finish.alpha == 1.0)
        and (row.get("beta") != "one" or finish.beta == 1.0)
    )


def rectifier(known: Profile, query: GemmQuery, configuration: Configuration) -> Step:
    """The relu of a configuration, which keeps a NaN or returns 0 for it.  Raises RowNotCovered."""
    for row in known.tables["rectifiers"]:
        if (
            row["algorithm"] == configuration.algorithm
            and row.get("sums", "fp32") == query.scale_type
            and row["sliced"] == (configuration.split_k > 1)
            and query.multiplied in row["dtypes"]
            and configuration.reduction in row["reductions"]
        ):
            known.record_use("rectifiers", row)
            return Step(name="relu", nan=row["nan"])
    raise RowNotCovered(
        f"{query.description} with relu is not described: what the library's relu returns for a NaN is not measured "
        f"with this configuration (algorithm {configuration.algorithm}, split_k {configuration.split_k}, reduction "
        f"{configuration.reduction}); the nearest described call is torch.addmm, followed by torch.relu"
    )
