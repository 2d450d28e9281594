"""Pictures of points as a page that shows the text of a point where the pointer rests on it: SVG, without scripts."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

SIDE = 400  # of a panel, in pixels
STYLE = """body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem; color: #1a1a1a; }
figure { display: inline-block; margin: 0 1rem 1rem 0; max-width: 400px; vertical-align: top; }
figcaption { white-space: pre-line; font-size: .85rem; }
p { max-width: 60rem; color: #555; font-size: .85rem; white-space: pre-line; }
circle.point:hover { stroke: black; stroke-width: 2; fill-opacity: 1; }
b { font-weight: normal; margin-right: 1rem; white-space: nowrap; }"""


class Mark(NamedTuple):
    """A point: where it is drawn, its colour, and its text."""

    x: float
    y: float
    colour: str
    text: str


class Panel(NamedTuple):
    """Points in a disk of radius 1 where `extent` is 0, or in a square from -extent to extent."""

    title: str
    marks: Sequence[Mark]
    extent: float


def page(title: str, note: str, panels: Iterable[Panel], classes: Mapping[str, str]) -> str:
    """An HTML page that needs nothing besides itself; texts are shown as they are, whatever they hold.

    classes: the colour of each.
    """
    legend = "".join(
        f'<b><span style="color: {html.escape(colour)}">●</span> {html.escape(name)}</b>'
        for name, colour in classes.items()
    )
    body = "".join(map(_figure, panels))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{html.escape(title)}</title>
<style>
{STYLE}
</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
<p>{legend}</p>
{body}<p>{html.escape(note)}</p>
</body>
</html>
"""


def _figure(panel: Panel) -> str:
    side = panel.extent or 1.04
    size = 2.2 * side / SIDE  # a pixel and a bit
    rim = '<circle r="1" fill="none" stroke="#999" stroke-width="1" vector-effect="non-scaling-stroke"/>\n'
    radius = size * (2 if len(panel.marks) > 500 else 3)
    points = "".join(_point(mark, radius) for mark in panel.marks)
    return (
        f"<figure>\n<figcaption>{html.escape(panel.title)}</figcaption>\n"
        f'<svg width="{SIDE}" height="{SIDE}" viewBox="{-side:.4g} {-side:.4g} {2 * side:.4g} {2 * side:.4g}">\n'
        f"{'' if panel.extent else rim}{points}</svg>\n</figure>\n"
    )


def _point(mark: Mark, radius: float) -> str:
    place = f'cx="{mark.x:.4f}" cy="{-mark.y:.4f}" r="{radius:.4g}" fill="{html.escape(mark.colour)}"'
    return (
        f'<circle class="point" {place} fill-opacity="0.6" vector-effect="non-scaling-stroke">'
        f"<title>{html.escape(mark.text)}</title></circle>\n"
    )
