"""TorchInductor inside one class: tuned models, their configurations, and what one class costs."""
