"""triton-augment: changes of images for training."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def colours(t: Tensors) -> None:
    """Call the changes of brightness, contrast and saturation."""
    module = import_module("triton_augment.functional")
    for size, dtype in (((2, 3, 24, 20), "float32"), ((1, 3, 32, 40), "float16")):
        image = t.uniform(*size, dtype=dtype)
        for name, factor in (("adjust_brightness", 1.3), ("adjust_contrast", 0.8), ("adjust_contrast_fast", 1.2),
                             ("adjust_saturation", 0.6)):  # fmt: skip
            t.call(getattr(module, name), image, factor)
        t.call(module.rgb_to_grayscale, image, 3)
        t.call(module.normalize, image, (0.48, 0.45, 0.4), (0.23, 0.22, 0.22))


def geometry(t: Tensors) -> None:
    """Call the cuts, reflections and affine maps, and all in one kernel."""
    module = import_module("triton_augment.functional")
    image = t.uniform(2, 3, 28, 36)
    t.call(module.crop, image, 3, 5, 16, 20)
    t.call(module.horizontal_flip, image, t.of([True, False], "bool"))
    t.call(module.horizontal_flip, image)
    t.call(module.rotate, image, 25.0, module.InterpolationMode.BILINEAR)
    t.call(module.affine, image, 15.0, [2.0, 1.0], 1.1, [5.0, 0.0])
    t.call(module.fused_augment, image, 2, 3, 16, 24, True)


CASES = {each.__name__: each for each in (colours, geometry)}
