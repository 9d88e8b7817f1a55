"""The choices among divisions of few rows, by the width of query and key.

`python -m bitwise_bench.attention.fitting` prints this module from a record of the times of divisions.
"""

from bitwise_nvidia_sm90.attention.few_rows import Branch, Choices, Division

# fmt: off
CHOICES = {
    64: Choices(
        equal=Branch(
            'parts', 1.37,
            Division(split=True, blocks=4, resident=3, stages=1, alone=False),
            Division(split=True, blocks=1, resident=6, stages=4, alone=True),
        ),
        equal_chunk=Division(split=False, blocks=4, resident=2, stages=1, alone=False),
        ragged=Branch(
            'parts', 2.39,
            Division(split=True, blocks=4, resident=3, stages=1, alone=False),
            Division(split=True, blocks=1, resident=6, stages=4, alone=True),
        ),
        ragged_chunk=Division(split=False, blocks=4, resident=2, stages=1, alone=False),
    ),
    96: Choices(
        equal=Branch(
            'parts', 2.3,
            Division(split=True, blocks=4, resident=2, stages=1, alone=False),
            Division(split=True, blocks=1, resident=6, stages=9, alone=True),
        ),
        equal_chunk=Division(split=False, blocks=1, resident=2, stages=6, alone=False),
        ragged=Branch(
            'parts', 2.46,
            Division(split=True, blocks=4, resident=2, stages=1, alone=False),
            Division(split=True, blocks=1, resident=9, stages=6, alone=True),
        ),
        ragged_chunk=Division(split=False, blocks=4, resident=2, stages=1, alone=False),
    ),
    128: Choices(
        equal=Division(split=True, blocks=1, resident=2, stages=3, alone=False),
        equal_chunk=Division(split=False, blocks=1, resident=1, stages=6, alone=False),
        ragged=Division(split=True, blocks=1, resident=2, stages=3, alone=False),
        ragged_chunk=Division(split=False, blocks=1, resident=1, stages=6, alone=False),
    ),
    192: Choices(
        equal=Division(split=True, blocks=1, resident=1, stages=6, alone=False),
        equal_chunk=Division(split=False, blocks=4, resident=1, stages=1, alone=False),
        ragged=Division(split=True, blocks=1, resident=1, stages=6, alone=False),
        ragged_chunk=Division(split=False, blocks=4, resident=1, stages=1, alone=False),
    ),
    256: Choices(
        equal=Division(split=True, blocks=4, resident=1, stages=1, alone=False),
        equal_chunk=Division(split=False, blocks=4, resident=1, stages=1, alone=False),
        ragged=Division(split=True, blocks=1, resident=1, stages=6, alone=False),
        ragged_chunk=Division(split=False, blocks=4, resident=1, stages=1, alone=False),
    ),
}
# fmt: on
