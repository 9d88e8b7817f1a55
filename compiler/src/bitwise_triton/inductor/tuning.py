"""The hooks in Inductor's autotuner: what its instances choose from, and what they do once they have chosen."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bitwise_triton.compilation import configuration_name
from bitwise_triton.errors import CaptureError
from bitwise_triton.inductor.direct_launch import DirectLaunch, is_plain, watcher
from bitwise_triton.inductor.kernel_compilation import is_searched, note_preferred
from bitwise_triton.inductor.launches import launch_tensors, numbers_of
from bitwise_triton.inductor.reference import Untuned, candidates, is_of_the_configuration, load_function
from bitwise_triton.inductor.selection import LaunchSelection, Rules, digests_of

_HOOKED = ("run", "bench", "benchmark_all_configs", "_interpret_args_grid", "precompile")
_SEARCHES = ("coordinate_descent_tuning", "_combo_sequential_autotune")
"""Methods of the autotuner that take a launcher and the arguments, and return a launcher that may be another."""


WORTH_A_PROOF = 0.005
"""The part of a kernel's time that another configuration must gain to be proved; less is hardly more than noise."""

logger = logging.getLogger("bitwise_triton")

Settled: TypeAlias = Callable[[Any, Any, Any], Any]
"""Takes an autotuner, the result that it chose and its launcher.  Returns a launcher of the same machine code."""


@dataclass
class _Tuned:
    """The launchers of a kernel, the reference first; the verdicts and the choice for each combination of numbers.

    For combinations in `by_tensors`, the choice depends on the contents of the tensors as well, which its key has then.
    `results` are the autotuner's compile results, which some versions of it throw away with the first choice.
    """

    launchers: list[Any]
    results: list[Any]
    direct: DirectLaunch
    selections: dict[Any, LaunchSelection] = field(default_factory=dict)
    chosen: dict[Any, Any] = field(default_factory=dict)
    by_tensors: set[Any] = field(default_factory=set)


def _no_preference(autotuner: Any) -> None:
    """Name no configuration."""


@contextmanager
def hooked_autotuner(
    autotuner: type[Any],
    compile_result: type[Any],
    rules: Rules,
    settled: Settled | None = None,
    untuned: Untuned = _no_preference,
) -> Iterator[None]:
    """Restrict what instances of Inductor's autotuner choose from.  Raises CaptureError for an unknown version.

    The reference of a kernel with a choice is the configuration that `untuned` names, or, where it names none or one
    that does not compile, the first one of `reference.candidates` that does.
    """
    missing = [name for name in _HOOKED if not hasattr(autotuner, name)]
    if missing or not hasattr(compile_result, "make_launcher"):
        raise CaptureError(f"This version of torch has another autotuner: it lacks {', '.join(missing)}.")
    run, bench, bench_all = autotuner.run, autotuner.bench, autotuner.benchmark_all_configs
    make_launcher = compile_result.make_launcher
    watched = watcher(run)

    def tuned_of(self: Any) -> _Tuned:
        found: _Tuned | None = self.__dict__.get("_bitwise_tuned")
        if found is None:
            if "bitwise_listed" not in vars(self) and getattr(self, "configs", None):
                note_preferred(self, untuned)
            if not self.launchers:
                self.precompile()
            for each in self.launchers:
                each.bitwise_result = _result_of(self, each)
            reference = _reference(self)
            launchers = [reference, *(each for each in self.launchers if each is not reference)]
            direct = DirectLaunch(lambda *arguments, **keywords: otherwise(self, *arguments, **keywords), watched)
            found = self._bitwise_tuned = _Tuned(launchers, list(self.compile_results), direct)
        return found

    def selection_of(self: Any, arguments: tuple[Any, ...]) -> LaunchSelection:
        tuned = tuned_of(self)
        key = numbers_of(arguments)
        if key not in tuned.selections:
            reference = _result_of(self, tuned.launchers[0])
            tuned.selections[key] = LaunchSelection(self, arguments, reference, rules)
        return tuned.selections[key]

    def otherwise(self: Any, *arguments: Any, **keywords: Any) -> Any:
        current = type(self).run
        if getattr(current, "bitwise_hook", False):
            return current(self, *arguments, **keywords)
        # Outside of same_bits, tuning for other numbers is free.  The reference is what every process has.
        tuned = tuned_of(self)
        return untuned_run(self, tuned.chosen.get(numbers_of(arguments), tuned.launchers[0]), arguments, keywords)

    def untuned_run(self: Any, launcher: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        before = self.inductor_meta
        self.inductor_meta = {**before, "coordinate_descent_tuning": False, "combo_tuning_groups": None}
        try:
            _offer(self, [launcher])
            return run(self, *arguments, **keywords)
        finally:
            self.inductor_meta = before

    def new_run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        tuned = tuned_of(self)
        if len(tuned.launchers) == 1 and not is_searched(self):
            step_out(self, tuned, (), tuned.launchers[0], keywords)
            return untuned_run(self, tuned.launchers[0], arguments, keywords)
        numbers = numbers_of(arguments)
        key: Any = numbers
        if numbers in tuned.by_tensors:
            reference = _result_of(self, tuned.launchers[0])
            key = numbers, digests_of(launch_tensors(self, reference, arguments, rules.tensors, rules.tensor_bytes))
        known = tuned.chosen.get(key)
        if known is not None:
            return untuned_run(self, known, arguments, keywords)
        _offer(self, tuned.launchers)
        self.compile_results = list(tuned.results)
        _forget_times(self)
        result = run(self, *arguments, **keywords)
        selection = tuned.selections.pop(numbers, None)  # it holds the tensors of this launch
        if selection is not None and selection.digests is not None:
            tuned.by_tensors.add(numbers)
            key = numbers, selection.digests
        (tuned.chosen[key],) = self.launchers
        if selection is not None:
            selection.publish(_result_of(self, self.launchers[0]))
        if numbers not in tuned.by_tensors:
            step_out(self, tuned, arguments, self.launchers[0], keywords)
        return result

    def step_out(self: Any, tuned: _Tuned, arguments: tuple[Any, ...], launcher: Any, keywords: dict[str, Any]) -> None:
        if type(self).run is not new_run or set(keywords) != {"stream"} or not is_plain(self, launcher):
            return
        final = launcher if settled is None else settled(self, _result_of(self, launcher), launcher)
        direct = tuned.direct.add(arguments, final)
        if direct is not None:
            self.run = direct

    def new_bench(self: Any, launcher: Any, *arguments: Any, **keywords: Any) -> Any:
        to_beat = self.__dict__.get("_bitwise_to_beat")
        if to_beat is None:
            allowed = selection_of(self, arguments).allows(_result_of(self, launcher))
            return bench(self, launcher, *arguments, **keywords) if allowed else math.inf
        found, result = bench(self, launcher, *arguments, **keywords), _result_of(self, launcher)
        selection = selection_of(self, arguments)
        selection.note(result, found)
        if to_beat == 0.0:  # nothing is proved yet
            return found
        if found >= (1.0 - WORTH_A_PROOF) * to_beat:
            # It is not chosen, and needs no proof.  The search times its start again, which may be chosen.
            return found if selection.has_allowed(result) else math.inf
        if not selection.allows(result):
            return math.inf
        self._bitwise_to_beat = found
        return found

    def new_bench_all(self: Any, *arguments: Any, **keywords: Any) -> Any:
        selection = selection_of(self, arguments)
        with _proving_below(self, 0.0):
            times = bench_all(self, *arguments, **keywords)
        # Configurations that gain little come after the reference, as do those that cannot be timed.
        least = (1.0 - WORTH_A_PROOF) * min(
            (time for each, time in times.items() if _result_of(self, each) is selection.reference), default=math.inf
        )

        def rank(launcher: Any) -> tuple[int, float]:
            is_reference = _result_of(self, launcher) is selection.reference
            return 1 if is_reference else 0 if times[launcher] < least else 2, times[launcher]

        ordered = sorted(times, key=rank)
        chosen = selection.fastest([_result_of(self, each) for each in ordered])
        _refuse(self, [each for each in ordered if selection.refuses(_result_of(self, each))])
        kept = {each: times[each] for each in ordered if _result_of(self, each) is chosen}
        self._bitwise_times = dict(kept)
        return kept

    def searched(search: Callable[..., Any]) -> Callable[..., Any]:
        def new_search(self: Any, launcher: Any, *arguments: Any, **keywords: Any) -> Any:
            # A search goes from one configuration to a faster one.
            time = self.__dict__.get("_bitwise_times", {}).get(launcher, math.inf)
            with _proving_below(self, time):
                found = search(self, launcher, *arguments, **keywords)
            allowed = selection_of(self, arguments).allows(_result_of(self, found))
            return found if allowed else launcher

        return new_search

    def new_make_launcher(self: Any) -> Any:
        launcher = make_launcher(self)
        launcher.bitwise_result = self
        return launcher

    new_run.bitwise_hook = True  # type: ignore[attr-defined]
    changed: list[tuple[type[Any], str, Callable[..., Any]]] = [
        (autotuner, "run", new_run),
        (autotuner, "bench", new_bench),
        (autotuner, "benchmark_all_configs", new_bench_all),
        *((autotuner, name, searched(getattr(autotuner, name))) for name in _SEARCHES if hasattr(autotuner, name)),
        (compile_result, "make_launcher", new_make_launcher),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changed]
    try:
        for owner, name, function in changed:
            setattr(owner, name, function)
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


@contextmanager
def untimed_fields(tuner: type[Any]) -> Iterator[None]:
    """Let Inductor's search for the fastest number, such as the rows of a part of a reduction, return its first one.

    Kernels that differ in such a number are different texts.  They are timed while code is generated, so that none of
    them can be compared.
    """
    name = "autotune_single_field"
    before = vars(tuner).get(name)
    if before is None:  # a version that has no such search
        yield
        return
    setattr(tuner, name, staticmethod(lambda function, first, *limits, **named_limits: first))
    try:
        yield
    finally:
        setattr(tuner, name, before)


def _reference(autotuner: Any) -> Any:
    """Return the launcher of the reference, which is compiled and loaded once more where it is not there.

    Other processes have it, so no other one may take its place: what failed for lack of memory, or was stopped, is an
    error here.  A configuration that needs more than the GPU has, or that the assembler rejects, does so everywhere.
    """
    if "bitwise_listed" not in vars(autotuner):  # it was compiled outside
        return autotuner.launchers[0]
    for configuration in candidates(autotuner.bitwise_listed, autotuner.bitwise_preferred):
        same = configuration.all_kwargs()
        found = next((each for each in autotuner.launchers if each.config.all_kwargs() == same), None)
        if found is not None:
            return found
        try:
            result = next((each for each in autotuner.compile_results if each.config.all_kwargs() == same), None)
            if result is None:
                load_function(autotuner)
                result = autotuner._precompile_config(configuration)
                autotuner.compile_results.append(result)
            found = result.make_launcher()
        except Exception as error:
            if not is_of_the_configuration(error):
                raise CaptureError(
                    f"The reference of kernel {autotuner.fn.__name__!r}, ({configuration_name({}, same)}), cannot be "
                    f"compiled and loaded here, and no other one has its bits: {type(error).__name__}: {error}"
                ) from error
            logger.info("%s has no (%s): %s", autotuner.fn.__name__, configuration_name({}, same), error)
            continue
        found.bitwise_result = result
        autotuner.launchers.append(found)
        return found
    return autotuner.launchers[0]  # what Inductor makes of a kernel that has none


def _offer(autotuner: Any, launchers: list[Any]) -> None:
    """Let the autotuner choose from these launchers."""
    autotuner.launchers = list(launchers)
    if getattr(autotuner, "_cached_launcher", None) is not None:
        autotuner._cached_launcher = None


@contextmanager
def _proving_below(autotuner: Any, time: float) -> Iterator[None]:
    """Let the autotuner time configurations before they are proved; one that takes no less than `time` needs no proof.

    Elsewhere a configuration is proved before it is timed.
    """
    before = autotuner.__dict__.get("_bitwise_to_beat")
    autotuner._bitwise_to_beat = time
    try:
        yield
    finally:
        autotuner._bitwise_to_beat = before


def _refuse(autotuner: Any, launchers: list[Any]) -> None:
    """Tell the search for other configurations that these, which may not be chosen, are slow."""
    remember: Callable[[Any, float], object] | None
    remember = getattr(getattr(autotuner, "coordesc_tuner", None), "cache_benchmark_result", None)
    if remember is not None:
        for each in launchers:
            remember(each.config, math.inf)


def _forget_times(autotuner: Any) -> None:
    """Remove the times of configurations that were measured for other numbers: the proofs were for those, too."""
    tuner = getattr(autotuner, "coordesc_tuner", None)
    if tuner is not None:
        tuner.cached_benchmark_results.clear()


def _result_of(autotuner: Any, launcher: Any) -> Any:
    """Return the compile result of a launcher."""
    found = getattr(launcher, "bitwise_result", None)
    if found is not None:
        return found
    for each in autotuner.compile_results:
        if each.config is launcher.config:
            return each
    raise CaptureError("A kernel was tuned by a launcher that Inductor does not list.")
