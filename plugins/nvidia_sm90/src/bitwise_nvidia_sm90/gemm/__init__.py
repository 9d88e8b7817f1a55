"""GEMM kernels with the bits of a descriptor: plans, schedules, launches and tuning."""
