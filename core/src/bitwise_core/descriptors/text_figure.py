"""The k axis of a descriptor as a text figure: the parts of each cut, and the loop over k of one part."""

from __future__ import annotations

from bitwise_core.descriptors.cuts import Cut
from bitwise_core.descriptors.gemm import GEMMDesc
from bitwise_core.descriptors.k_axis import FILL, Part, instructions, parts_of

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_INDENT = 10


def picture(desc: GEMMDesc, width: int = 72) -> list[str]:
    """Return the lines of the figure, each after its label.

    The lines are: a ruler, a bar and the merge for each cut, outermost first, bars of at most `width` characters; the
    first instructions of the first part; what is dropped; and how the last sum is stored.

    A `|` starts a part and its number follows; `.` stands for k in no part.  An inner cut is drawn along the first part
    of the cut before it, whose k are counted from 0; of many parts only the first ones are drawn.  A strided cut is
    drawn at its own scale, from the first k of the part that it cuts: one character for each k, or for each tile, which
    is the number of its part.
    """
    lines, part = _ruler("k", desc.k, width), parts_of(desc)
    for number, cut in enumerate(desc.k_cuts):
        name = f"cut {number}"
        if not len(part.positions):
            lines.append(_label(name) + f"{len(part.parts)} parts of the tail alone")
        elif cut.layout == "strided":
            lines += _strided_tiles(part, cut.tile, width, name)
        else:
            length = len(part.positions) if number else desc.k
            shown = part.parts if 4 * len(part.parts) <= width else part.parts[: width // 8]
            more = "..." if len(shown) < len(part.parts) else ""
            length = sum(len(each.positions) for each in shown) if more else length
            if number or more:
                lines += _ruler("part 0" if number else "k", length, width)
            lines.append(_label(name) + _bar(shown, length, width) + more)
        lines.append(_label("merge") + merge_text(cut, len(part.parts)))
        part = next(each for each in part.parts if not each.empty)
    lines += _k_loop(desc, part, width)
    if desc.tail is not None:
        end = desc.k - desc.k_dropped
        lines.append(_label("tail") + f"{end - desc.tail.length} to {end - 1}, after all iterations")
    if desc.k_dropped:
        lines.append(_label("dropped") + f"{desc.k - desc.k_dropped} to {desc.k - 1} reach no sum")
    return [*lines, _label("stored") + stored_text(desc)]


def merge_text(cut: Cut, count: int) -> str:
    """Return the order in which `count` parts are added, and the types they are rounded to."""
    if cut.groups:
        text = "in groups"
    elif count < 2:
        text = "one part"
    elif cut.running_sum:
        order = cut.order.steps(count).sequence
        shown = order[:4] if count <= 5 else order[:3]
        text = "(" * (len(shown) - 2) + f"{shown[0]} + {shown[1]}" + "".join(f") + {each}" for each in shown[2:])
        if count > len(shown):
            text = f"({text}) + {order[-1]}" if count == len(shown) + 1 else f"({text}) + ... + {order[-1]}"
    else:
        pairs = [f"{into} + {other}" for into, other in cut.order.first_round(count)]
        text = f"{', '.join(pairs[:2])}{', ...' if len(pairs) > 2 else ''} first, {cut.order.tree}"
    if cut.start == "zero":
        text = f"from +0, {text}"
    rounded = f"; a part is rounded to {cut.partial_dtype}" if cut.partial_dtype != "fp32" else ""
    return f"{text}, each sum in {cut.merge_dtype}{rounded}"


def stored_text(desc: GEMMDesc) -> str:
    """Return how the last sum is scaled, rounded and stored."""
    scale = "times both scales, " if desc.operand_scales else f"times {desc.alpha!r}, " if desc.scaled else ""
    result = desc.k_cuts[0].merge_dtype if desc.k_cuts else desc.accumulator_dtype
    return scale + (f"{result} as it is" if desc.output_dtype == result else f"rounded to {desc.output_dtype}")


def _label(text: str) -> str:
    return text.ljust(_INDENT)


def _ruler(name: str, length: int, width: int) -> list[str]:
    return [_label(name) + "0" + str(length).rjust(width - 1)]


def _bar(parts: tuple[Part, ...], length: int, width: int) -> str:
    """Draw contiguous parts of `length` k."""
    cells, passed = ["."] * width, 0
    for number, each in enumerate(parts):
        begin = passed * width // length
        passed += len(each.positions)
        end = max(begin + 1, passed * width // length)
        if not len(each.positions):
            continue
        text = f"|{number}" if len(str(number)) < end - begin else "|"
        cells[begin:end] = list(text[: end - begin].ljust(end - begin, "-"))[: max(0, width - begin)]
    return "".join(cells[:width])


def _strided_tiles(part: Part, tile: int, width: int, name: str) -> list[str]:
    """Draw the tiles of a strided cut, one character for a tile where single k do not fit."""
    low = int(part.positions[0])
    each = 1 if tile * len(part.parts) * 2 <= width else tile
    places = part.positions[: width * each : each]
    owners = {}
    for number, found in enumerate(part.parts):
        owners.update(dict.fromkeys(found.positions[found.positions <= int(places[-1])].tolist(), number))
    cells = "".join(_DIGITS[owners[place] % len(_DIGITS)] for place in places.tolist())
    unit = "each k" if each == 1 else f"each tile of {tile} k"
    more = "..." if len(part.positions) > width * each else ""
    count = len(part.parts)
    return [
        _label(name) + f"from k = {low}, a character for {unit}: its part, 0 to {count - 1}"
        + (f" (written modulo {len(_DIGITS)})" if count > len(_DIGITS) else ""),
        _label("") + cells + more,
    ]  # fmt: skip


def _k_loop(desc: GEMMDesc, part: Part, width: int) -> list[str]:
    """Draw the k that the first and the last instructions of a part take."""
    texts = []
    for taken in instructions(desc, part).tolist():
        real = [k for k in taken if k != FILL]
        if not real:
            texts.append("[zeros]")
            continue
        ascending = real == list(range(real[0], real[0] + len(real)))
        text = str(real[0]) if len(real) == 1 else f"{real[0]}..{real[-1]}" if ascending else ",".join(map(str, real))
        texts.append(f"[{text}]")
    name = "k loop" if not desc.k_cuts else "part 0"
    shown, used = [], 0
    for text in texts:
        used += len(text) + 1
        if used > width - 8 - len(texts[-1]):
            break
        shown.append(text)
    if len(shown) < len(texts):
        shown += ["...", texts[-1]]
    return [_label(name) + " ".join(shown)]
