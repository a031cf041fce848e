"""Draw docs/images/architecture.svg from the imports of the code: the rooms on their shelves, and who imports whom.

    python scripts/draw_architecture.py            write the picture
    python scripts/draw_architecture.py --print    the lines of the picture as text: room, the rooms that it imports

A room stands above all rooms that it imports. Of the imports only those are drawn that no longer way shows: where
`gluon` imports `hybridize` and `hybridize` imports `graph`, there is no line from `gluon` to `graph`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import measure_code  # noqa: E402 - beside this file

TARGET = measure_code.ROOT / "docs" / "images" / "architecture.svg"
#: Title of a shelf -> its rooms. A room that no shelf names is on the first one.
SHELVES = {
    "what net(x) goes through": (),
    "files and other frameworks": ("formats", "formats.archive", "formats.checkpoint", "data", "onnx", "torch"),
    "tools that look on": ("insight", "lint", "lab", "cli"),
    "MXNet's older interfaces": ("mxnet",),
}
WIDTH, HEIGHT, GAP, LINE = 128, 26, 10, 42
MARGIN, HEAD = 16, 34


def shelf_of(room: str) -> int:
    """The number of the shelf that a room stands on."""
    for number, names in enumerate(SHELVES.values()):
        if any(room == name or room.startswith(f"{name}.") for name in names):
            return number
    return 0


def edges(modules: list[measure_code.Source]) -> dict[str, set[str]]:
    """Room -> the rooms that it imports, without those that it reaches through another one."""
    found: dict[str, set[str]] = {room: set() for room in measure_code.LEVEL if room not in measure_code.SHELVES}
    for source in modules:
        for _, target, _ in measure_code.imports(source):
            room = measure_code.room_of(target)
            if room in found and source.room in found and room != source.room:
                found[source.room].add(room)
    for room in ("_version", "aliases", "system", "mxnet.without_compat"):  # everybody imports them, or nobody
        found.pop(room)
    for rooms in found.values():
        rooms.intersection_update(found)
    below: dict[str, set[str]] = {}
    for room in sorted(found, key=measure_code.LEVEL.__getitem__):
        below[room] = set(found[room]).union(*(below.get(each, set()) for each in found[room]))
    return {
        room: {each for each in rooms if not any(each in below[other] for other in rooms if other != each)}
        for room, rooms in found.items()
    }


def picture(found: dict[str, set[str]]) -> str:
    """The SVG."""
    levels = sorted({measure_code.LEVEL[room] for room in found}, reverse=True)
    rows = {level: row for row, level in enumerate(levels)}
    cells: dict[tuple[int, int], list[str]] = {}
    for room in sorted(found, key=lambda room: (measure_code.LEVEL[room], room)):
        cells.setdefault((shelf_of(room), rows[measure_code.LEVEL[room]]), []).append(room)
    widest = [
        max((len(rooms) for (each, _), rooms in cells.items() if each == n), default=1) for n in range(len(SHELVES))
    ]
    starts = [MARGIN]
    for count in widest:
        starts.append(starts[-1] + count * (WIDTH + GAP) + 2 * GAP)
    places = {
        room: (starts[shelf] + GAP + position * (WIDTH + GAP), HEAD + MARGIN + row * LINE)
        for (shelf, row), rooms in cells.items()
        for position, room in enumerate(rooms)
    }
    width, height = starts[-1] + MARGIN, HEAD + MARGIN + len(levels) * LINE + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        "<title>The rooms of hybrid_lab: each imports only rooms that are lower</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, title in enumerate(SHELVES):
        x, across = starts[number], starts[number + 1] - starts[number] - GAP
        parts.append(f'<rect x="{x}" y="8" width="{across}" height="{height - 16}" rx="6" fill="#f3f5f8"/>')
        parts.append(f'<text x="{x + GAP}" y="26" font-weight="bold" fill="#30363d">{title}</text>')
    for room, targets in found.items():
        for target in sorted(targets):
            (x1, y1), (x2, y2) = places[room], places[target]
            a, b, top, end = x1 + WIDTH // 2, x2 + WIDTH // 2, y1 + HEIGHT, y2
            bend = max(18, (end - top) // 2)
            curve = f"M{a} {top}C{a} {top + bend} {b} {end - bend} {b} {end}"
            parts.append(f'<path d="{curve}" fill="none" stroke="#8b98a9" stroke-opacity="0.55"/>')
    for room, (x, y) in places.items():
        parts.append(
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4" fill="#ffffff" stroke="#4f6d8f"/>'
            f'<text x="{x + WIDTH // 2}" y="{y + 17}" text-anchor="middle" fill="#1f2328">{room}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    found = edges(measure_code.sources())
    if sys.argv[1:] == ["--print"]:
        for room, targets in found.items():
            print(f"{room}: {', '.join(sorted(targets))}")
        return
    TARGET.write_text(picture(found), encoding="utf-8")


if __name__ == "__main__":
    main()
