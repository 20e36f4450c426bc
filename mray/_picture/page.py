"""An HTML page without other files: lanes with slices over time, and arrows between them. Pure.

The wheel zooms, dragging moves, a double click shows everything, hovering over a slice shows its full text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import NamedTuple


class Slice(NamedTuple):
    lane: int
    begin: float
    end: float
    text: str
    color: str
    #: The number of slices around it, and its mark: "", "failed" or "running".
    depth: int = 0
    mark: str = ""


def page(
    title: str,
    lanes: Sequence[str],
    slices: Sequence[Slice],
    arrows: Sequence[tuple[int, float, int, float]],
    legend: Sequence[tuple[str, str]],
    unit: str,
) -> str:
    """Arrows connect moments of lanes; `legend`: texts with their colours, "none" for a text alone."""
    # Escaped so that no name ends the script.
    info = json.dumps({"lanes": lanes, "slices": slices, "arrows": arrows, "unit": unit}).replace("<", "\\u003c")
    signs = {color: "" if color == "none" else f"<i style='background:{color}'></i>" for _text, color in legend}
    entries = "".join(f"<li>{signs[color]}{escape(text)}</li>" for text, color in legend)
    return (
        f"<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n"
        f"</head>\n<body>\n<ul>{entries}</ul>\n<canvas tabindex='0'></canvas>\n"
        "<p>Turn the wheel to zoom, drag to move, double-click to see everything.</p>\n"
        f"<script type='application/json'>{info}</script>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


_STYLE = """
body { font: 12px Helvetica, Arial, sans-serif; margin: 12px; color: #222; }
ul { list-style: none; padding: 0; margin: 0 0 8px; }
li { display: inline-block; margin-right: 14px; }
li i { display: inline-block; width: 14px; height: 10px; margin-right: 4px; border: 1px solid #666; }
canvas { display: block; width: 100%; cursor: grab; }
p { color: #666; }
"""

_SCRIPT = """
const info = JSON.parse(document.querySelector('script').textContent), canvas = document.querySelector('canvas');
const LEFT = Math.min(280, canvas.clientWidth * 0.35), LANE = 30, pen = canvas.getContext('2d');
const first = Math.min(...info.slices.map(each => each[1])), last = Math.max(...info.slices.map(each => each[2]));
let from = first, to = last, held = null;
const place = time => LEFT + (time - from) / (to - from || 1) * (canvas.clientWidth - LEFT);
const middle = lane => 20 + LANE * (lane + 0.5);
function draw() {
  const ratio = window.devicePixelRatio || 1, height = 40 + LANE * info.lanes.length;
  canvas.width = canvas.clientWidth * ratio; canvas.height = height * ratio; canvas.style.height = height + 'px';
  pen.scale(ratio, ratio); pen.font = '11px Helvetica, Arial, sans-serif'; pen.textBaseline = 'middle';
  for (const [lane, begin, end, text, color, depth, mark] of info.slices) {
    if (end < from || begin > to) continue;
    const x = Math.max(place(begin), LEFT), width = Math.max(place(end) - x, 0.5), size = 24 * 0.7 ** depth;
    pen.fillStyle = color; pen.fillRect(x, middle(lane) - size / 2, width, size);
    pen.setLineDash(mark === 'running' ? [4, 3] : []); pen.strokeStyle = mark === 'failed' ? '#B22222' : mark ? '#555' : '#FFF';
    pen.strokeRect(x, middle(lane) - size / 2, width, size);
    if (width > 24) {
      pen.save(); pen.beginPath(); pen.rect(x, 0, width - 2, height); pen.clip();
      pen.fillStyle = '#000'; pen.fillText(text, x + 3, middle(lane)); pen.restore();
    }
  }
  pen.setLineDash([]); pen.strokeStyle = '#777';
  for (const [lane, left, reader, came] of info.arrows) {
    if (left < from || came > to) continue;
    const x = place(came), y = middle(reader), up = reader > lane ? -4 : 4;
    pen.beginPath(); pen.moveTo(place(left), middle(lane)); pen.lineTo(x, y); pen.moveTo(x - 4, y + up); pen.lineTo(x, y); pen.stroke();
  }
  pen.fillStyle = '#FFF'; pen.fillRect(0, 0, LEFT - 2, height); pen.fillStyle = '#222';
  info.lanes.forEach((name, lane) => pen.fillText(name.slice(0, LEFT / 6.4), 0, middle(lane)));
  const parts = canvas.clientWidth < 600 ? 2 : 4;
  for (let part = 0; part <= parts; part += 1) {
    const time = from + (to - from) * part / parts;
    pen.textAlign = part === parts ? 'right' : 'left'; pen.fillText(`${(time - first).toPrecision(4)} ${info.unit}`, place(time), 10);
  }
  pen.textAlign = 'left';
}
canvas.addEventListener('wheel', event => {
  event.preventDefault();
  const by = Math.exp(event.deltaY * 0.0015), at = from + (event.offsetX - LEFT) / (canvas.clientWidth - LEFT) * (to - from);
  from = at - (at - from) * by; to = at + (to - at) * by; draw();
}, { passive: false });
canvas.addEventListener('pointerdown', event => { held = event.offsetX; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener('pointerup', () => { held = null; });
canvas.addEventListener('pointermove', event => {
  const time = from + (event.offsetX - LEFT) / (canvas.clientWidth - LEFT) * (to - from), lane = Math.floor((event.offsetY - 20) / LANE);
  if (held === null) {
    const under = info.slices.filter(each => each[0] === lane && each[1] <= time && time <= each[2]);
    canvas.title = under.map(each => `${each[3]}: ${(each[2] - each[1]).toPrecision(3)} ${info.unit}`).join('\\n');
    return;
  }
  const by = (held - event.offsetX) / (canvas.clientWidth - LEFT) * (to - from);
  from += by; to += by; held = event.offsetX; draw();
});
canvas.addEventListener('dblclick', () => { from = first; to = last; draw(); });
window.addEventListener('resize', draw);
draw();
"""
