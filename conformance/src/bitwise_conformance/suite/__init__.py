"""The suite that every plugin takes, by one test module of its own with its samples beside it:

    from pathlib import Path

    from bitwise_conformance.suite import *
    from bitwise_toy import plugin

    SUITE = Suite(plugin, Path(__file__).parent / "samples")

`bitwise_conformance.suite.expected` says what lies in the folder of samples.
"""

from __future__ import annotations

import pytest

# Before they are imported: pytest explains the assertions of modules that it is told of.
pytest.register_assert_rewrite(
    *(f"{__name__}.{name}_laws" for name in ("text", "declaration", "meaning", "change", "unit"))
)

from bitwise_conformance.suite.cases import pytest_generate_tests  # noqa: E402
from bitwise_conformance.suite.change_laws import test_changed_kernels_are_not_equal  # noqa: E402
from bitwise_conformance.suite.declaration_laws import test_instructions_do_what_they_declare  # noqa: E402
from bitwise_conformance.suite.meaning_laws import (  # noqa: E402
    test_a_kernel_is_read,
    test_bytes,
    test_classes,
    test_every_launch,
    test_listed_changes,
    test_signatures_are_stable,
    test_trees,
    test_trees_have_the_recorded_bytes,
)
from bitwise_conformance.suite.suite import Suite  # noqa: E402
from bitwise_conformance.suite.text_laws import (  # noqa: E402
    test_a_cut_text_is_refused,
    test_a_group_can_be_read,
    test_a_text_is_parsed,
    test_a_text_is_written,
    test_every_instruction_is_stated,
    test_known_failures_name_cases,
    test_the_samples_are_the_plugins,
)
from bitwise_conformance.suite.unit_laws import (  # noqa: E402
    test_a_launcher_returns_what_is_evaluated,
    test_a_matrix_unit_has_the_bits_of_its_vectors,
    test_a_profile_declines_what_it_does_not_know,
)

__all__ = [
    "Suite",
    "pytest_generate_tests",
    "test_a_cut_text_is_refused",
    "test_a_group_can_be_read",
    "test_a_kernel_is_read",
    "test_a_launcher_returns_what_is_evaluated",
    "test_a_matrix_unit_has_the_bits_of_its_vectors",
    "test_a_profile_declines_what_it_does_not_know",
    "test_a_text_is_parsed",
    "test_a_text_is_written",
    "test_bytes",
    "test_changed_kernels_are_not_equal",
    "test_classes",
    "test_every_instruction_is_stated",
    "test_every_launch",
    "test_instructions_do_what_they_declare",
    "test_known_failures_name_cases",
    "test_listed_changes",
    "test_signatures_are_stable",
    "test_the_samples_are_the_plugins",
    "test_trees",
    "test_trees_have_the_recorded_bytes",
]
