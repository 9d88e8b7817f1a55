"""The launches that operators make: every call of a Triton kernel is intercepted, and described once.

Autotuning does not take place.  A launch of an autotuned kernel has all configurations that its package gives, and runs
with the first that compiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

from bitwise_bench.public_kernels.configurations import Configuration, chosen_configurations, variations
from bitwise_bench.readings.compile_times import cpu_seconds
from bitwise_triton.argument_keys import argument_key
from bitwise_triton.compilation import unwrap
from bitwise_triton.config_binding import bind_configuration
from bitwise_triton.errors import CaptureError
from bitwise_triton.tensor_stand_ins import copy_descriptor, is_descriptor, stand_ins, tensor_groups

MAXIMUM_STORAGE = 32 << 20
"""Bytes of all tensors of a launch; larger launches are not recorded."""
MAXIMUM_BLOCKS = 4096
"""Blocks of a launch; larger ones are not recorded."""


@dataclass(frozen=True)
class Storage:
    """The memory of one or several tensors of a launch: a copy of its bytes, and the type of its elements.

    `dtype` is None where the tensors of the memory have different types.
    """

    tensor: Any
    dtype: Any


@dataclass(frozen=True)
class Intercepted:
    """One launch: the kernel, its configurations, and its tensors as they were before.

    `own`: the configurations are those of the package's autotuner.  `storages` are by the address of the memory.
    `left_out` counts configurations of the package beyond the limit.
    `arguments` are the positional arguments of a kernel of TorchInductor, whose `kernel` is its autotuner.
    """

    name: str
    kernel: Any
    configurations: tuple[Configuration, ...]
    storages: Mapping[int, Storage]
    own: bool
    left_out: int = 0
    arguments: tuple[Any, ...] | None = None


@dataclass
class Interception:
    """The launches of a driver in the order of their first call, and why others were not recorded.

    `execute`: calls launch their kernels; without it they do nothing.  `calls` counts all calls of kernels.
    """

    execute: bool
    maximum_launches: int = 60
    maximum_configurations: int = 8
    launches: list[Intercepted] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    calls: int = 0
    _seen: set[object] = field(default_factory=set)
    _inside_autotuner: int = 0

    def called(self, kernel: Any, settings: Mapping[str, Any], configs: Sequence[Any] | None, decorated: Any) -> None:
        """Record a call of `kernel`, with the configurations of its autotuner if `configs` are given."""
        self.calls += 1
        name = f"{kernel.fn.__module__}.{kernel.fn.__qualname__}"
        try:
            wanted = variations(settings) if configs is None else configs
            found = [each for each in (_bound(decorated, config, settings) for config in wanted) if each is not None]
            if not found:
                raise CaptureError("no configuration could be bound")
            key = (name, argument_key([(stand_ins(each.values), each.options, each.grid) for each in found]))
            if key in self._seen:
                return
            self._seen.add(key)
            self._keep(name, kernel, found, configs is not None, found[0].values, None)
        except CaptureError as error:
            self.refused.append(f"{name}: {error}")
        except Exception as error:  # a driver goes on without the launch
            self.refused.append(f"{name}: {type(error).__name__}: {error}")

    def called_inductor(self, autotuner: Any, arguments: tuple[Any, ...]) -> None:
        """Record a call of a kernel of TorchInductor."""
        self.calls += 1
        name = str(autotuner.fn.__name__)
        try:
            values = dict(enumerate(arguments))
            named = {str(place): value for place, value in values.items()}
            source = getattr(autotuner.fn, "src", name)
            key = (source, argument_key(stand_ins(named)))
            if key in self._seen:
                return
            self._seen.add(key)
            found = [Configuration({}, {"launcher": launcher}, None) for launcher in autotuner.launchers]
            self._keep(name, autotuner, found, True, named, arguments, getattr(autotuner, "bitwise_left_out", 0))
        except Exception as error:  # the model goes on without the launch
            self.refused.append(f"{name}: {type(error).__name__}: {error}")

    def _keep(
        self,
        name: str,
        kernel: Any,
        found: Sequence[Configuration],
        own: bool,
        values: Mapping[str, Any],
        arguments: tuple[Any, ...] | None,
        left_out: int = 0,
    ) -> None:
        if len(self.launches) >= self.maximum_launches:
            raise CaptureError(f"more than {self.maximum_launches} launches in one case")
        blocks = max(1 if each.grid is None else each.grid[0] * each.grid[1] * each.grid[2] for each in found)
        if blocks > MAXIMUM_BLOCKS:
            raise CaptureError(f"{blocks} blocks")
        storages = copied_storages(values)
        total = sum(each.tensor.numel() for each in storages.values())
        if total > MAXIMUM_STORAGE:
            raise CaptureError(f"{total} bytes of tensors")
        kept = chosen_configurations(found, self.maximum_configurations)
        left_out += len(found) - len(kept)
        self.launches.append(Intercepted(name, kernel, tuple(kept), storages, own, left_out, arguments))


def _bound(decorated: Any, config: Any, settings: Mapping[str, Any]) -> Configuration | None:
    """Return the launch of a configuration; None for one that cannot be bound."""
    try:
        launch = bind_configuration(decorated, config, settings, None)
    except (CaptureError, ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
        return None
    if launch.grid is None:
        return None
    return Configuration(launch.values, launch.options, launch.grid, config.pre_hook if launch.effects else None)


def copied_storages(values: Mapping[str, Any]) -> dict[int, Storage]:
    """Return a copy of the memory of all tensors, by its address."""
    found = {}
    for address, group in tensor_groups(values).items():
        if address != 0:
            first = _owner(group.tensors[0])
            types = {str(each.dtype) for each in group.tensors}
            found[address] = Storage(_bytes_of(first).clone(), first.dtype if len(types) == 1 else None)
    return found


def _bytes_of(tensor: Any) -> Any:
    """Return the whole memory of a tensor as a tensor of bytes."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def replaced_tensors(value: Any, memory: Mapping[int, Any]) -> Any:
    """Return an argument with each tensor over the new memory of its storage, given as bytes by the old address."""
    import torch

    if isinstance(value, tuple):
        parts = [replaced_tensors(part, memory) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_descriptor(value):
        return copy_descriptor(value, replaced_tensors(value.base, memory))
    if type(value).__name__ == "TensorWrapper":
        return type(value)(replaced_tensors(value.base, memory), value.dtype)
    if not isinstance(value, torch.Tensor):
        return value
    new = memory.get(int(value.untyped_storage().data_ptr()))
    if new is None:
        return value
    found = torch.empty(0, dtype=value.dtype, device=new.device)
    return found.set_(new.untyped_storage(), value.storage_offset(), value.shape, value.stride())


def _owner(tensor: Any) -> Any:
    return tensor.base if type(tensor).__name__ == "TensorWrapper" else tensor


Patch = tuple[Any, str, Callable[..., Any]]


@contextmanager
def intercepted(interception: Interception) -> Iterator[Interception]:
    """Intercept the launches of Triton, and of TorchInductor where it is loaded, while the context is entered."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    patches: list[Patch] = [(JITFunction, "run", _kernel_run(interception, JITFunction.run))]
    autotuner_run = _autotuner_run(interception)
    patches += [(each, "run", autotuner_run) for each in (Autotuner, *_with_own_run(Autotuner))]

    def subclassed(cls: Any, /, **keywords: Any) -> None:
        # Packages have autotuners of their own; their choice of a configuration does not take place either.
        if "run" in cls.__dict__:
            cls.run = autotuner_run

    Autotuner.__init_subclass__ = classmethod(subclassed)
    patches += _inductor_patches(interception)
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in patches]
    try:
        for owner, name, function in patches:
            setattr(owner, name, function)
        yield interception
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)
        del Autotuner.__init_subclass__


def _with_own_run(cls: Any) -> Iterator[Any]:
    for each in cls.__subclasses__():
        if "run" in each.__dict__:
            yield each
        yield from _with_own_run(each)


def _kernel_run(interception: Interception, original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        if not interception._inside_autotuner and not warmup:
            names = list(self.signature.parameters)
            settings = {**dict(zip(names, arguments, strict=False)), **keywords, "grid": grid}
            interception.called(self, settings, None, self)
        if interception.execute:
            return original(self, *arguments, grid=grid, warmup=warmup, **keywords)
        return _NotLaunched()

    return run


class _NotLaunched:
    """The compiled kernel that a call returns where nothing is launched."""

    n_regs = n_spills = 0
    result: Literal[None] = None

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *arguments, **keywords: None


def _autotuner_run(interception: Interception) -> Callable[..., Any]:
    def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, arguments, strict=False))
        settings = {**self.nargs, **keywords}
        try:
            configs = list(self.prune_configs(keywords))
        except Exception:  # a pruner that needs a GPU
            configs = list(self.configs)
        kernel, _ = unwrap(self.fn)
        if not interception._inside_autotuner:
            if len(configs) == 1 and not configs[0].kwargs:
                # The package chose nothing: the kernel is varied like one without an autotuner.
                interception.called(kernel, {**settings, **configs[0].all_kwargs()}, None, self.fn)
            else:
                interception.called(kernel, settings, configs, self.fn)
        interception._inside_autotuner += 1
        try:
            return _first_that_runs(self, configs, arguments, keywords)
        finally:
            interception._inside_autotuner -= 1
            self.nargs = None

    return run


def _first_that_runs(
    autotuner: Any, configs: Sequence[Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> Any:
    failure: Exception | None = None
    for config in configs:
        try:
            if config.pre_hook is not None:
                config.pre_hook({**autotuner.nargs, **keywords, **config.all_kwargs()})
            autotuner.best_config = config
            return autotuner.fn.run(*arguments, **{**keywords, **config.all_kwargs()})
        except Exception as error:
            if "CUDA" in str(error):
                raise
            failure = error
    assert failure is not None
    raise failure


@contextmanager
def without_cache() -> Iterator[None]:
    """Let Triton compile what it has compiled before, so that the time is that of compiling."""
    from triton import knobs

    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        yield


def _inductor_patches(interception: Interception) -> list[Patch]:
    try:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner, TritonCompileResult
    except ImportError:
        return []
    run, make_launcher = CachingAutotuner.run, TritonCompileResult.make_launcher
    precompile = CachingAutotuner.precompile

    def new_precompile(self: Any, *arguments: Any, **keywords: Any) -> Any:
        every = self.configs or []
        if len(every) > interception.maximum_configurations:
            self.configs = chosen_configurations(every, interception.maximum_configurations)
            self.bitwise_left_out = len(every) - len(self.configs)
        return precompile(self, *arguments, **keywords)

    def new_run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if not self.launchers:
            self.precompile()
        interception.called_inductor(self, arguments)
        self.launchers = self.launchers[:1]
        return run(self, *arguments, **keywords) if interception.execute else None

    def new_make_launcher(self: Any) -> Any:
        launcher = make_launcher(self) if interception.execute else SimpleNamespace(config=self.config, cache_hash="")
        launcher.bitwise_result = self
        return launcher

    compile_one = CachingAutotuner._precompile_config

    def timed_compile(self: Any, config: Any) -> Any:
        start, used = time.perf_counter(), cpu_seconds()
        with without_cache():
            result = compile_one(self, config)
        result.bitwise_seconds = time.perf_counter() - start
        result.bitwise_cpu_seconds = cpu_seconds() - used
        return result

    return [
        (CachingAutotuner, "run", new_run),
        (CachingAutotuner, "precompile", new_precompile),
        (CachingAutotuner, "_precompile_config", timed_compile),
        (TritonCompileResult, "make_launcher", new_make_launcher),
    ]
