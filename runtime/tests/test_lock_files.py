"""Lock files, without PyTorch: a written file reads back, and an invalid file is refused with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bitwise_core.descriptors import Cut, GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, GEMMProblem
from bitwise_core.input_files import MAXIMUM_BYTES
from bitwise_torch.locks import Entry, Lock, LockError, differences, lock_of, read_lock


def descriptor(k: int, span: int = 3) -> GEMMDesc:
    return GEMMDesc(
        k=k, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="fma", k_cuts=(Cut(span=span),)
    )


def problem(m: int, n: int, k: int, **more: Any) -> GEMMProblem:
    return GEMMProblem(m=m, n=n, k=k, a="fp16", b="fp16", out="fp16", **more)


def test_a_file_reads_back_and_invalid_files_are_refused(tmp_path: Path) -> None:
    lock = lock_of(
        [(problem(4, 5, 20, batch=2, stride_a=100), descriptor(20)), (problem(1, 1, 7), "no row")], {"library": "toy"}
    )
    path = tmp_path / "lock.json"
    lock.write(path)
    assert read_lock(path) == lock
    text = lock.to_text()
    assert len(text.splitlines()) == 4
    invalid = [
        ("cannot be read \\(No such file", None),
        ("this is not complete JSON .* the file may be truncated", text[:-9]),
        ("this is not complete JSON", ""),
        ("this is not a lock file", "[1]"),
        ("this is not a lock file", '{"version": 1}'),
        (
            "the lock file has version 4 and this bitwise reads versions 1 to 3",
            text.replace('"version": 2', '"version": 4'),
        ),
        ("there is no such field", text.replace('"entries"', '"products"')),
        ("m: input should be greater than or equal to 1, not 0", text.replace('"m":4', '"m":0')),
        ("is not a descriptor of a matrix product: there is no descriptor 'gem'", text.replace("gemm(", "gem(")),
        ("the descriptor does not fit the problem 2 of 4x5x20", text.replace("gemm(k=20", "gemm(k=21")),
        ("exactly one of `descriptor` and `declined`", text.replace('"declined":"no row"', '"descriptor":null')),
        (
            "has two entries: remove one",
            text.replace('"m":1,"n":1,"k":7', '"m":4,"n":5,"k":20,"batch":2,"stride_a":100'),
        ),
        ("ld_a = 20 leaves no gap", text.replace('"stride_a":100', '"ld_a":20')),
        ("the lock file has version True", text.replace('"version": 2', '"version": true')),
        ("the lock file has version 2.0", text.replace('"version": 2', '"version": 2.0')),
        ("stride_a: input should be a valid integer, not '100'", text.replace('"stride_a":100', '"stride_a":"100"')),
        ("transpose_a: input should be a valid boolean, not 'x'", text.replace('"m":1,', '"m":1,"transpose_a":"x",')),
        ("scale belongs to steps: remove it", text.replace('"descriptor"', '"scale":2.0,"descriptor"')),
        ("widened_from belongs to steps", text.replace('"descriptor"', '"widened_from":"e4m3","descriptor"')),
        ("onto_addend: input should be a valid boolean", text.replace('"descriptor"', '"onto_addend":1,"descriptor"')),
    ]
    for number, (sentence, content) in enumerate(invalid):
        bad = tmp_path / f"{number}.json"
        if content is not None:
            bad.write_text(content)
        with pytest.raises(LockError, match=f"^{bad}: .*{sentence}"):
            read_lock(bad)


def test_long_files_and_binary_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    with path.open("wb") as file:
        file.truncate(MAXIMUM_BYTES + 1)
    with pytest.raises(LockError, match="has more than 64 MiB; at most that is read"):
        read_lock(path)
    path.write_bytes(b"\xff")
    with pytest.raises(LockError, match="it is not text"):
        read_lock(path)


def test_an_entry_records_whether_the_sum_is_rounded_first() -> None:
    biased = problem(4, 5, 20, epilogue="bias")
    once, twice = (
        lock_of([(biased, BiasedGEMM(product=descriptor(20), rounded_first=each))], {}) for each in (False, True)
    )
    assert Lock.from_text(twice.to_text()) == twice
    assert once == lock_of([(biased, descriptor(20))], {})
    assert [each.change for each in differences(once, twice)] == ["moved"]
    with pytest.raises(LockError, match="rounded_first needs a descriptor and a problem with a bias"):
        Lock.from_text(twice.to_text().replace(',"epilogue":"bias"', ""))


def test_a_vector_is_not_a_transpose() -> None:
    vectors = [problem(1, 5, 7, transpose_a=True), problem(5, 1, 7, transpose_b=True),
               problem(5, 6, 1, transpose_a=True, transpose_b=True)]  # fmt: skip
    assert [each.letters for each in vectors] == ["NN", "NN", "NN"]
    assert problem(1, 5, 7, transpose_a=True, ld_a=3).letters == "TN"
    assert problem(5, 6, 7, transpose_a=True, transpose_b=True).letters == "TT"


def test_a_problem_with_two_descriptors_is_declined() -> None:
    lock = lock_of([(problem(1, 2, 9), descriptor(9)), (problem(1, 2, 9), descriptor(9, 4))], {})
    assert [each.descriptor for each in lock.entries] == [None]
    with pytest.raises(LockError, match="it ran with several descriptors"):
        lock.descriptor(problem(1, 2, 9))
    with pytest.raises(LockError, match="is locked without a descriptor"):
        _ = Entry(problem=problem(1, 2, 9), declined="why").desc
    assert Lock().entries == ()


@pytest.mark.parametrize(("k", "change"), [(1 << 10, "moved"), (1 << 24, "unknown")])
def test_long_sums_of_different_descriptors_are_not_compared(k: int, change: str) -> None:
    """A file with one line of 2^24 values of k takes no minutes."""
    one, other = (lock_of([(problem(1, 1, k), descriptor(k, span))], {}) for span in (64, 128))
    assert [each.change for each in differences(one, other)] == [change]
    assert [each.change for each in differences(one, one)] == ["same"]
