"""The conformance suite of plugins.  A plugin runs it by one test module, with a folder of samples next to it:

    from pathlib import Path

    from bitwise_conformance.suite import *
    from bitwise_toy import plugin

    SUITE = Suite(plugin, Path(__file__).parent / "samples")

`bitwise_conformance.suite.samples` documents the folder of samples.
"""

from __future__ import annotations

import pytest

# pytest rewrites the assertions of these modules only if they are registered before they are imported.
pytest.register_assert_rewrite(
    *(f"{__name__}.{name}_laws" for name in ("parsing", "declaration", "semantics", "mutation", "component"))
)

from bitwise_conformance.suite.cases import pytest_generate_tests  # noqa: E402
from bitwise_conformance.suite.component_laws import (  # noqa: E402
    test_launchers_match_the_evaluation,
    test_matrix_unit_vectors,
    test_profiles_decline_unknown_configurations,
)
from bitwise_conformance.suite.declaration_laws import test_instructions_match_their_declarations  # noqa: E402
from bitwise_conformance.suite.mutation_laws import test_changed_kernels_are_not_equal  # noqa: E402
from bitwise_conformance.suite.parsing_laws import (  # noqa: E402
    test_damaged_texts_are_rejected,
    test_every_instruction_is_modelled,
    test_group_files_are_valid,
    test_known_failures_name_cases,
    test_parsing_is_deterministic,
    test_samples_belong_to_the_plugin,
    test_written_texts_parse_back,
)
from bitwise_conformance.suite.semantics_laws import (  # noqa: E402
    test_bytes,
    test_classes,
    test_every_launch,
    test_kernels_are_analysed,
    test_listed_changes,
    test_signatures_are_stable,
    test_trees,
    test_trees_evaluate_to_recorded_bytes,
)
from bitwise_conformance.suite.suite import Suite  # noqa: E402

__all__ = [
    "Suite",
    "pytest_generate_tests",
    "test_bytes",
    "test_changed_kernels_are_not_equal",
    "test_classes",
    "test_damaged_texts_are_rejected",
    "test_every_instruction_is_modelled",
    "test_every_launch",
    "test_group_files_are_valid",
    "test_instructions_match_their_declarations",
    "test_kernels_are_analysed",
    "test_known_failures_name_cases",
    "test_launchers_match_the_evaluation",
    "test_listed_changes",
    "test_matrix_unit_vectors",
    "test_parsing_is_deterministic",
    "test_profiles_decline_unknown_configurations",
    "test_samples_belong_to_the_plugin",
    "test_signatures_are_stable",
    "test_trees",
    "test_trees_evaluate_to_recorded_bytes",
    "test_written_texts_parse_back",
]
