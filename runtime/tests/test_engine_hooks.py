"""Hooks of engines, against stand-ins with the names and arguments of the engines' own functions."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bitwise_core.plugins import registry
from bitwise_core.plugins.launchers import SequentialLauncher
from bitwise_torch.batch_invariance.mode import BatchVarianceError, BatchVarianceWarning, batch_invariant
from bitwise_torch.engine_hooks import megatron, process_mode, sglang, torchtitan, vllm
from bitwise_torch.engine_hooks.process_mode import VARIABLE, EngineHookError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not any(isinstance(each, SequentialLauncher) for each in registry.default().launchers):
    pytest.skip("no installed plugin has a launcher of products", allow_module_level=True)


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv(vllm.OWN_VARIABLE, "1")
    monkeypatch.setattr(megatron, "_warned", set())
    monkeypatch.setattr(process_mode, "_left", set())
    yield
    process_mode.disable()


def module(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> ModuleType:
    """Install a module, and empty ones for its packages."""
    parts = name.split(".")
    for end in range(1, len(parts)):
        parent = ".".join(parts[:end])
        if parent not in sys.modules:
            monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
    made = ModuleType(name)
    vars(made).update(content)
    monkeypatch.setitem(sys.modules, name, made)
    return made


def mode_functions() -> dict[str, Any]:
    """Return functions of an engine's own mode."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("the engine's own mode")

    return dict.fromkeys(process_mode.FUNCTIONS, refuse)


def rows(count: int, k: int = 24) -> Any:
    return torch.randn(9, k, generator=torch.Generator().manual_seed(1)).bfloat16()[:count].clone()


def has_the_mode() -> bool:
    """Return whether a sum has the bytes of the mode, which PyTorch's own sum of these numbers does not have."""
    x = torch.randn(3, 700, generator=torch.Generator().manual_seed(2))
    with batch_invariant():
        pinned = x.sum(1)
    return torch.equal(x.sum(1), pinned)


@pytest.mark.parametrize("release", vllm.MODULES)
def test_vllm_loads_the_entry_point_and_enables_the_mode(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(vllm.__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    group, _, line = text.partition('entry-points."vllm.general_plugins"]\n')[2].partition(" = ")
    value = line.split('"')[1]
    register = EntryPoint(group, value, "vllm.general_plugins").load()
    engine = module(monkeypatch, release, **mode_functions())
    own = engine.enable_batch_invariant_mode
    register()
    assert engine.enable_batch_invariant_mode is own
    monkeypatch.setenv(VARIABLE, "1")
    register()
    assert not has_the_mode()
    engine.enable_batch_invariant_mode()
    assert has_the_mode()
    process_mode.disable()
    assert not has_the_mode()


def test_vllm_without_its_own_variable_has_no_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    module(monkeypatch, vllm.MODULES[0], **mode_functions())
    monkeypatch.delenv(vllm.OWN_VARIABLE)
    vllm.register()  # nobody asks for the mode
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.warns(BatchVarianceWarning, match="only with VLLM_BATCH_INVARIANT=1: set both"):
        vllm.register()
    monkeypatch.setenv(vllm.OWN_VARIABLE, "0")
    monkeypatch.setenv(VARIABLE, "strict")
    with pytest.raises(EngineHookError, match="only with VLLM_BATCH_INVARIANT=1: set both"):
        vllm.register()


def test_a_variable_of_another_value_and_a_missing_engine_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "yes")
    with pytest.raises(EngineHookError, match='set it to "1"'):
        vllm.register()
    monkeypatch.setenv(VARIABLE, "1")
    for name in vllm.MODULES:
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    with pytest.raises(EngineHookError, match="install vLLM"):
        vllm.register()
    module(monkeypatch, vllm.MODULES[0])
    with pytest.raises(EngineHookError, match="has another interface"):
        vllm.register()


def test_sglang_enables_and_disables_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    package, engine = (module(monkeypatch, name, **mode_functions()) for name in sglang.MODULES)
    sglang.register()
    package.enable_batch_invariant_mode(enable_bmm=False)
    package.enable_batch_invariant_mode()
    assert engine.is_batch_invariant_mode_enabled()
    assert has_the_mode()
    engine.disable_batch_invariant_mode()
    assert not package.is_batch_invariant_mode_enabled()
    assert not has_the_mode()


def test_functions_that_an_engine_has_imported_already_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = mode_functions()
    for name in sglang.MODULES:
        module(monkeypatch, name, **functions)
    layer = module(monkeypatch, "sglang.srt.layers.layernorm", **functions)
    own = {**functions, "other": functions["enable_batch_invariant_mode"]}
    elsewhere = module(monkeypatch, "elsewhere.of_sglang", **own)
    sglang.register()
    layer.enable_batch_invariant_mode()
    assert layer.is_batch_invariant_mode_enabled()
    assert {name: vars(elsewhere)[name] for name in own} == own


def test_a_block_of_the_mode_leaves_the_mode_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    package, _ = (module(monkeypatch, name, **mode_functions()) for name in sglang.MODULES)
    sglang.register()
    with package.set_batch_invariant_mode():
        assert has_the_mode()
        with package.set_batch_invariant_mode(False):
            assert not has_the_mode()
        assert has_the_mode()
    assert not has_the_mode()
    with pytest.raises(KeyError), package.set_batch_invariant_mode():
        raise KeyError
    assert not has_the_mode()
    package.enable_batch_invariant_mode()
    with package.set_batch_invariant_mode(True, backend="te_native", collective="ordered"):
        pass
    assert has_the_mode()


def test_the_operators_of_an_engines_mode_are_those_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(*arguments: Any, **options: Any) -> str:
        return "the engine's"

    operators = dict.fromkeys(process_mode.OPERATORS, own)
    engine = module(monkeypatch, vllm.MODULES[0], **mode_functions(), **operators)
    layers = module(monkeypatch, "vllm.model_executor.layers.linear", linear_batch_invariant=own)
    monkeypatch.setenv(VARIABLE, "1")
    for _ in range(2):
        vllm.register()
    x, weight, bias = rows(5), rows(9), torch.ones(9).bfloat16()
    assert layers.linear_batch_invariant(x, weight, None) == engine.rms_norm_batch_invariant(x, weight[0]) == own()
    engine.enable_batch_invariant_mode()
    with batch_invariant():
        expected = torch.nn.functional.linear(x, weight), torch.nn.functional.linear(x, weight, bias)
        norms = torch.nn.functional.rms_norm(x, (24,), weight[0], 1e-5)
    assert torch.equal(layers.linear_batch_invariant(x, weight, None), expected[0])
    assert torch.equal(layers.linear_batch_invariant(x[1:2], weight, bias=bias), expected[1][1:2])
    for name in ("matmul_batch_invariant", "mm_batch_invariant", "matmul_persistent"):
        assert torch.equal(vars(engine)[name](x, weight.t()), expected[0])
    assert torch.equal(engine.matmul_persistent(x, weight.t(), bias=bias), expected[1])
    assert torch.equal(engine.bmm_batch_invariant(x[None], weight.t()[None], out=None)[0], expected[0])
    assert torch.equal(engine.rms_norm_batch_invariant(x, weight[0], 1e-5, residual=None), norms)
    with pytest.warns(BatchVarianceWarning, match="was called with arguments that the mode has not"):
        assert engine.rms_norm_batch_invariant(x, weight[0], 1e-5, strategy=1) == own()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert engine.rms_norm_batch_invariant(x, weight[0], 1e-5, strategy=1) == own()
    residual, given = 2 * x, x.clone()
    with batch_invariant():
        unscaled, after = torch.nn.functional.rms_norm(x, (24,)), torch.nn.functional.rms_norm(3 * x, (24,), weight[0])
        chances = torch.softmax(x, 1), torch.log_softmax(x, 1), x.mean(1, keepdim=True)
        sums = torch.addmm(bias, x, weight.t())
    assert torch.equal(engine.rms_norm_batch_invariant(x, None, torch.finfo(torch.float32).eps), unscaled)
    both = engine.rms_norm_batch_invariant(given, weight[0], torch.finfo(torch.float32).eps, residual=residual)
    assert both[0] is given
    assert both[1] is residual
    assert torch.equal(given, after)
    assert torch.equal(residual, x + 2 * x)
    assert torch.equal(engine.softmax_batch_invariant(x, 1), chances[0])
    assert torch.equal(engine.log_softmax(x, dim=1), chances[1])
    assert torch.equal(engine.mean_dim(x, 1, keepdim=True), chances[2])
    assert engine.mean_dim(torch.tensor([[1, 2]]), 1).item() == 1.5
    assert torch.equal(engine.addmm_batch_invariant(bias, x, weight.t()), sums)
    process_mode.disable()
    assert layers.linear_batch_invariant(x, weight) == own()
    monkeypatch.setenv(VARIABLE, "strict")
    engine.enable_batch_invariant_mode()
    with pytest.raises(BatchVarianceError, match="own kernel runs"):
        engine.mean_dim(x, 1, strategy=1)


def set_batch_invariance(enable: bool) -> None:
    """Stand for TorchTitan's function of this name."""
    from batch_invariant_ops import enable_batch_invariant_mode

    if enable:
        enable_batch_invariant_mode()


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("release", torchtitan.OWN_MODES)
def test_torchtitan_takes_its_operators_from_the_mode(
    release: str, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    for name in torchtitan.OWN_MODES:
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    module(monkeypatch, release, set_batch_invariance=set_batch_invariance)
    module(monkeypatch, torchtitan.OPERATORS, **mode_functions())
    if not installed:
        monkeypatch.delitem(sys.modules, torchtitan.OPERATORS)
        monkeypatch.setattr(torchtitan, "import_module", without(torchtitan.OPERATORS))
    torchtitan.register()
    set_batch_invariance(False)
    assert not has_the_mode()
    set_batch_invariance(True)
    assert has_the_mode()


def test_the_mode_comes_before_what_torchtitan_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchTitan registers a sum of its own behind the operators that it takes from the mode."""
    libraries = []

    def with_a_sum(enable: bool) -> None:
        set_batch_invariance(enable)
        library = torch.library.Library("aten", "IMPL")
        library.impl("sum.dim_IntList", lambda x, dim, keepdim=False, dtype=None: x[:, 0], "CPU", allow_override=True)
        libraries.append(library)

    own = module(monkeypatch, torchtitan.OWN_MODES[0], set_batch_invariance=with_a_sum)
    trainer = module(monkeypatch, "torchtitan.trainer", set_batch_invariance=with_a_sum)
    module(monkeypatch, torchtitan.OPERATORS, **mode_functions())
    for _ in range(2):
        torchtitan.register()
    with batch_invariant():
        expected = rows(5).float().sum(1)
    try:
        trainer.set_batch_invariance(True)
        assert torch.equal(rows(5).float().sum(1), expected)
        process_mode.disable()
        assert torch.equal(rows(5).float().sum(1), rows(5).float()[:, 0])
    finally:
        for library in libraries:
            library._destroy()
    assert own.set_batch_invariance is trainer.set_batch_invariance


def test_a_torchtitan_without_operators_has_the_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    module(monkeypatch, torchtitan.OWN_MODES[0], set_batch_invariance=set_batch_invariance)
    monkeypatch.setattr(torchtitan, "import_module", without(torchtitan.OPERATORS))
    monkeypatch.delitem(sys.modules, torchtitan.OPERATORS, raising=False)
    torchtitan.register()
    from batch_invariant_ops import mean_dim

    assert mean_dim(torch.tensor([[1.0, 3.0]]), 1).item() == 2.0
    monkeypatch.delitem(sys.modules, torchtitan.OPERATORS)


def without(missing: str) -> Any:
    """Return a function that imports modules other than the one that is missing."""

    def imported(name: str) -> ModuleType:
        if name == missing:
            raise ModuleNotFoundError(name)
        return import_module(name)

    return imported


def test_the_installed_torchtitan_takes_its_operators_from_the_mode() -> None:
    utils = pytest.importorskip(torchtitan.OWN_MODES[1], reason="TorchTitan is not installed")
    torchtitan.register()
    utils.set_batch_invariance(True)
    assert has_the_mode()


@pytest.mark.parametrize("hook", [megatron, sglang, vllm])
def test_the_installed_engine_enables_and_disables_the_mode(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = pytest.importorskip(hook.MODULES[0], reason="the engine is not installed")
    monkeypatch.setenv(VARIABLE, "1")
    hook.register()
    engine.enable_batch_invariant_mode()
    assert has_the_mode()
    process_mode.disable()
    assert not has_the_mode()


def test_torchtitan_converts_a_model_by_enabling_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in torchtitan.OWN_MODES:
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    found: dict[str, Any] = {}
    module(monkeypatch, torchtitan.MODULE, register_model_converter=lambda kind, name: found.update({name: kind}))
    torchtitan.register()
    converter = found["bitwise"](object(), object())
    assert not has_the_mode()
    converter.convert(torch.nn.Linear(2, 2))
    assert has_the_mode()
    converter.post_optimizer_hook(None)
    monkeypatch.setitem(sys.modules, torchtitan.MODULE, ModuleType(torchtitan.MODULE))
    with pytest.raises(EngineHookError, match="in the program that starts the trainer"):
        torchtitan.register()


class Engine:
    """Stand-ins for Megatron and for Transformer Engine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.mode = module(monkeypatch, megatron.MODULES[0], **mode_functions())

        def general_gemm(
            A: Any, B: Any, out_dtype: Any = None, quantization_params: Any = None, gelu: bool = False,
            gelu_in: Any = None, alpha: float = 1.0, beta: Any = None, accumulate: bool = False, layout: str = "TN",
            out: Any = None, bias: Any = None, use_split_accumulator: bool = False, grad: bool = False, ub: Any = None,
            ub_type: Any = None, extra_output: Any = None, bulk_overlap: bool = False,
        ) -> Any:  # fmt: skip
            self.calls += 1
            return None, None, None, None

        def other(*arguments: Any, **options: Any) -> str:
            return "computed"

        class RMSNorm(torch.nn.Module):
            eps = 1e-5

            def __init__(self, weight: Any, zero_centered_gamma: bool) -> None:
                super().__init__()
                self.weight, self.zero_centered_gamma = weight, zero_centered_gamma

            def forward(self, x: Any) -> Any:
                return "computed"

        module(monkeypatch, megatron.GEMM, general_gemm=general_gemm, general_grouped_gemm=other)
        module(monkeypatch, megatron.NOTED["apply_normalization"], apply_normalization=other)
        monkeypatch.setattr(sys.modules[megatron.NORM], "RMSNorm", RMSNorm, raising=False)
        self.norm = RMSNorm
        self.fused = module(
            monkeypatch, "transformer_engine.pytorch.module.layernorm_linear", apply_normalization=other
        )
        self.grouped = module(monkeypatch, "megatron.core.extensions.transformer_engine", general_grouped_gemm=other)
        monkeypatch.setattr(megatron, "find_spec", lambda name: object())
        self.linear = module(monkeypatch, "transformer_engine.pytorch.module.linear", general_gemm=general_gemm)
        megatron.register()

    def gemm(self, *arguments: Any, **options: Any) -> Any:
        return self.linear.general_gemm(*arguments, **options)


def test_megatron_needs_no_transformer_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = module(monkeypatch, megatron.MODULES[0], **mode_functions())
    monkeypatch.setattr(megatron, "find_spec", lambda name: None)
    megatron.register()
    mode.enable_batch_invariant_mode()
    assert has_the_mode()
    monkeypatch.setattr(megatron, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, megatron.GEMM, None)  # type: ignore[arg-type]
    with pytest.raises(EngineHookError, match="general_gemm cannot be imported"):
        megatron.register()


def test_megatron_multiplies_in_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(monkeypatch)
    megatron.register()
    weight, x = rows(9), rows(4)
    engine.gemm(weight, x)
    assert engine.calls == 1
    engine.mode.enable_batch_invariant_mode(backend="te_native")
    whole = engine.gemm(weight, x.reshape(2, 2, -1))[0]
    assert whole.shape == (2, 2, 9)
    assert torch.equal(engine.gemm(weight, x[:1])[0], whole.reshape(4, 9)[:1])
    assert torch.equal(whole.reshape(4, 9), x @ weight.t())
    slope = rows(4, 9)
    assert torch.equal(engine.gemm(weight, slope, layout="NN", grad=True)[0], slope @ weight)
    bias = torch.ones(9).bfloat16()
    found, bias_gradient, *_ = engine.gemm(x, slope, layout="NT", grad=True, bias=bias)
    assert torch.equal(found, slope.t() @ x)
    assert torch.equal(bias_gradient, slope.sum(0))
    assert torch.equal(engine.gemm(weight, x, bias=bias)[0], x @ weight.t() + bias)
    gradient = torch.ones(9, 24, dtype=torch.bfloat16)
    assert engine.gemm(x, slope, layout="NT", out=gradient, accumulate=True)[0] is gradient
    assert torch.equal(gradient, slope.t() @ x + 1)
    assert engine.calls == 1


def test_what_transformer_engine_computes_is_warned_of_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(monkeypatch)
    weight, x = rows(9), rows(4)
    engine.mode.enable_batch_invariant_mode()
    with pytest.warns(BatchVarianceWarning, match="a call with gelu is computed by Transformer Engine"):
        engine.gemm(weight, x, gelu=True)
    engine.gemm(weight, x, gelu=True)  # no second warning, which would be an error
    with pytest.warns(BatchVarianceWarning, match="A is of the type str"):
        engine.gemm("quantised", x)
    assert engine.calls == 3
    monkeypatch.setenv(VARIABLE, "strict")
    with pytest.raises(BatchVarianceError, match="alpha or beta"):
        engine.gemm(weight, x, alpha=0.5)


def test_functions_of_transformer_engine_without_an_operator_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(monkeypatch)
    assert engine.fused.apply_normalization() == engine.grouped.general_grouped_gemm() == "computed"
    engine.mode.enable_batch_invariant_mode()
    with pytest.warns(BatchVarianceWarning, match="general_grouped_gemm may depend on the batch"):
        assert engine.grouped.general_grouped_gemm() == "computed"
    engine.grouped.general_grouped_gemm()  # no second warning, which would be an error
    monkeypatch.setenv(VARIABLE, "strict")
    with pytest.raises(BatchVarianceError, match="apply_normalization may depend on the batch"):
        engine.fused.apply_normalization()


@pytest.mark.parametrize("centred", [False, True])
def test_norms_of_transformer_engine_have_the_rows_of_the_mode(monkeypatch: pytest.MonkeyPatch, centred: bool) -> None:
    engine = Engine(monkeypatch)
    weight, x = rows(1)[0], rows(5)
    norm = engine.norm(weight, centred)
    assert norm(x) == "computed"
    engine.mode.enable_batch_invariant_mode()
    wide = weight.float() + centred
    with batch_invariant():
        expected = torch.nn.functional.rms_norm(x.float(), wide.shape, wide, 1e-5).bfloat16()
    assert torch.equal(norm(x), expected)
    assert torch.equal(norm(x[2:3]), expected[2:3])
    megatron.register()
    assert torch.equal(norm(x), expected)
