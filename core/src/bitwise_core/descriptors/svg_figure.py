"""The k axis of a descriptor as an SVG figure: its parts, their merge, the loop over k of one, and every rounding."""

from __future__ import annotations

from html import escape

from bitwise_core.descriptors.cuts import Cut, strided_owners
from bitwise_core.descriptors.gemm import GEMMDesc
from bitwise_core.descriptors.k_axis import FILL, Part, instructions, parts_of
from bitwise_core.descriptors.text_figure import merge_text, stored_text

WIDTH, MARGIN, BAR = 960, 24, 30
MOST = 16
"""The largest number of parts whose boundaries and merge are drawn."""

_COLOURS = ("#cfe8d5", "#d6e4f7", "#f7ddc4", "#dcd6f7", "#f4e9b8", "#bfe3e6", "#e6dcf2", "#f4c7c7")


class _Page:
    """Shapes from top to bottom; `y` is the top of the next one."""

    def __init__(self) -> None:
        self.shapes: list[str] = []
        self.y = MARGIN

    def text(self, x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> None:
        self.shapes.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self.shapes.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#555555"/>')

    def box(self, x: float, width: float, colour: str, label: str, title: str) -> None:
        self.shapes.append(
            f'<g><title>{escape(title)}</title><rect x="{x:g}" y="{self.y:g}" width="{width:g}" height="{BAR}" '
            f'fill="{colour}" stroke="#555555"/></g>'
        )
        if 7 * len(label) <= width:
            self.text(x + width / 2, self.y + 19, label, "middle")

    def plus(self, x: float, y: float) -> None:
        self.shapes.append(f'<circle cx="{x:g}" cy="{y:g}" r="8" fill="#ffffff" stroke="#555555"/>')
        self.text(x, y + 4, "+", "middle")

    def sentence(self, text: str) -> None:
        self.text(MARGIN, self.y + 12, text)
        self.y += 22


def to_svg(desc: GEMMDesc, title: str = "") -> str:
    """Return the figure as a complete SVG document."""
    page = _Page()
    if title:
        page.text(MARGIN, page.y + 4, title, size=14)
        page.y += 24
    part = parts_of(desc)
    page.sentence(f"k = 0 to {desc.k - 1}, {desc.left_dtype} x {desc.right_dtype}, in {desc.accumulator_dtype}")
    for level, cut in enumerate(desc.k_cuts):
        _level(page, desc, part, cut, level)
        part = next(each for each in part.parts if not each.empty)
    if not desc.k_cuts:
        _axis(page, [("all of k", 0, desc.k - desc.k_dropped)], desc.k)
        page.y += BAR + 16
    _k_loop(page, desc, part)
    page.sentence(f"stored: {stored_text(desc)}")
    height = page.y + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 2 * MARGIN} {height:g}" '
        f'width="{WIDTH + 2 * MARGIN}" height="{height:g}" font-family="monospace" role="img">'
        f"<title>{escape(title or 'the k axis of a product')}</title>" + "\n".join(["", *page.shapes, "</svg>", ""])
    )


def _axis(page: _Page, spans: list[tuple[str, int, int]], length: int) -> list[float]:
    """Draw parts (label, begin, end) along `length` k, dropped k in grey.  Returns the x of the parts' centres."""
    middles, scale = [], WIDTH / length
    for number, (label, begin, end) in enumerate(spans):
        x, width = MARGIN + begin * scale, max(1.0, (end - begin) * scale)
        page.box(x, width, _COLOURS[number % len(_COLOURS)], label, f"{label}: k {begin} to {end - 1}")
        middles.append(x + width / 2)
    end = spans[-1][2]
    if end < length:
        width = max(4.0, (length - end) * scale)
        page.box(MARGIN + WIDTH - width, width, "#999999", "", f"dropped: k {end} to {length - 1}")
        page.text(MARGIN + WIDTH, page.y - 4, f"{length - end} dropped", "end")
    return middles


def _level(page: _Page, desc: GEMMDesc, part: Part, cut: Cut, level: int) -> None:
    where = "k" if level == 0 else f"the first part of level {level - 1}"
    parts = part.parts
    if not len(part.positions):
        page.sentence(f"level {level}: {where}, {len(parts)} parts of the tail alone")
        page.sentence(f"merge: {merge_text(cut, len(parts))}")
        return
    count = len(parts)
    if cut.layout == "strided":
        page.sentence(f"level {level}: {where}, tiles of {cut.tile} k distributed round-robin over {count} parts")
        _strided_tiles(page, part, cut)
    else:
        page.sentence(f"level {level}: {where}, cut into {count} parts")
        middles = _contiguous(page, desc, part, level)
        _merge(page, cut, middles, count)
    page.sentence(f"merge: {merge_text(cut, count)}")


def _contiguous(page: _Page, desc: GEMMDesc, part: Part, level: int) -> list[float]:
    length = desc.k if level == 0 else len(part.positions)
    ends, spans = 0, []
    for number, each in enumerate(part.parts):
        begin, ends = ends, ends + len(each.positions)
        spans.append((str(number), begin, ends))
    page.y += 8
    middles = _axis(page, [each for each in spans if each[2] > each[1]], length)
    page.text(MARGIN, page.y + BAR + 14, "0", size=10)
    for _, _, end in spans[:-1] if len(spans) <= MOST else []:
        page.text(MARGIN + end * WIDTH / length, page.y + BAR + 14, str(end), "middle", 10)
    page.text(MARGIN + WIDTH, page.y + BAR + 14, str(length), "end", 10)
    page.y += BAR + 24
    return middles


def _strided_tiles(page: _Page, part: Part, cut: Cut) -> None:
    """Draw the first tiles of a strided cut, each with its part's colour and number."""
    tiles = min(32, -(-len(part.positions) // cut.tile))
    width = WIDTH / tiles
    page.y += 8
    for number, owner in enumerate(strided_owners(tiles, 1, len(part.parts)).tolist()):
        title = f"part {owner}: k {number * cut.tile} to {min((number + 1) * cut.tile, len(part.positions)) - 1}"
        page.box(MARGIN + number * width, width, _COLOURS[owner % len(_COLOURS)], str(owner), title)
    if tiles * cut.tile < len(part.positions):
        page.text(MARGIN + WIDTH, page.y - 4, f"... to {len(part.positions)}", "end", 10)
    page.y += BAR + 10


def _merge(page: _Page, cut: Cut, middles: list[float], count: int) -> None:
    """Draw the additions, in their order from top to bottom."""
    if count != len(middles) or not 2 <= count <= MOST:
        return
    steps = cut.part_steps(count)
    if steps.zeros:
        return
    height = 18 if count > 6 else 24
    places = dict(enumerate(zip(middles, [page.y - 14.0] * count, strict=True)))
    lowest, signs = page.y, []
    depth = dict.fromkeys(range(count), 0)
    for into, other in steps.additions:
        depth[into] = max(depth[into], depth[other]) + 1
        y = page.y + depth[into] * height - 8
        x = places[other][0] if cut.order.running_sum else (places[into][0] + places[other][0]) / 2
        for x1, y1 in (places[into], places[other]):
            page.line(x1, y1, x, y)
        signs.append((x, y))
        places[into] = (x, y)
        lowest = max(lowest, y + 12)
    for sign in signs:  # drawn after the lines, so that they cover them
        page.plus(*sign)
    page.y = int(lowest) + 6


def _k_loop(page: _Page, desc: GEMMDesc, part: Part) -> None:
    """Draw the steps of an innermost part: all of up to eight, otherwise the first six and the last."""
    taken = [[k for k in row if k != FILL] for row in instructions(desc, part).tolist()]
    called = desc.instruction
    name = f"{called.family} k {called.k} of {called.architecture}" if called is not None else (
        "one fused multiply-add a step" if desc.path == "fma" else "a product and a sum a step, each rounded"
    )  # fmt: skip
    where = "the first innermost part" if desc.k_cuts else "all of k"
    start = "-0" if desc.accumulator_start == "negative-zero" else "+0"
    page.sentence(f"loop over {where}: {len(taken)} steps from {start}, {name}")
    if desc.k_loop_step is not None:
        page.sentence(f"iterations of {desc.k_loop_step} k, the short one {desc.short_iteration}")
    if desc.tail is not None:
        page.sentence(f"the last {desc.tail.length} k are the tail, after all iterations")
    if not desc.use_fast_accum:
        page.sentence("each step from +0, then added to the accumulator")
    numbers = list(range(len(taken))) if len(taken) <= 8 else [*range(6), -1, len(taken) - 1]
    width = WIDTH / len(numbers)
    page.y += 4
    for place, number in enumerate(numbers):
        if number < 0:
            page.text(MARGIN + (place + 0.5) * width, page.y + 19, "...", "middle")
            continue
        group = taken[number]
        ends = f"{group[0]}..{group[-1]}" if len(group) > 1 else str(group[0]) if group else "zeros"
        colour = _COLOURS[0] if len(group) == desc.instruction_k else _COLOURS[4]
        page.box(MARGIN + place * width + 14, width - 14, colour, ends, f"step {number}: {len(group)} products")
        page.line(MARGIN + place * width, page.y + BAR / 2, MARGIN + place * width + 14, page.y + BAR / 2)
    page.y += BAR + 12
