"""An HTML page without other files: lanes with slices over time, and arrows between them. Pure.

The wheel zooms, dragging moves, a double click shows everything, hovering over a slice shows its full text. The page draws the lanes in
sight only, and of slices narrower than a pixel one for each pixel, so that hundreds of thousands of slices can be moved.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

#: Marks of slices.
FAILED, RUNS = "failed", "running"


class Slice(NamedTuple):
    """Times are in milliseconds."""

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
    lanes: Sequence[tuple[str, str]],
    slices: Sequence[Slice],
    arrows: Sequence[tuple[int, float, int, float]],
    legend: Sequence[tuple[str, str]],
    notes: Sequence[str] = (),
) -> str:
    """`lanes`: their names, each with a second line; arrows connect moments of lanes; `legend`: texts with their colours, "none" for a
    text alone; `notes`: what the page lacks, each a line.
    """
    # Texts and colours recur, and nanoseconds are six digits of milliseconds.
    looks: dict[tuple[str, str], int] = {}
    rows = [
        (lane, round(begin, 6), round(end, 6), looks.setdefault((text, color), len(looks)), depth, mark)
        for lane, begin, end, text, color, depth, mark in slices
    ]
    window = min((each.begin for each in slices), default=0.0), max((each.end for each in slices), default=1.0)
    info = {"lanes": lanes, "looks": list(looks), "slices": rows, "arrows": arrows, "window": window}
    # Escaped so that no name ends the script.
    data = json.dumps(info, separators=(",", ":")).replace("<", "\\u003c")
    signs = {color: "" if color == "none" else f"<i style='background:{color}'></i>" for _text, color in legend}
    entries = "".join(f"<li>{signs[color]}{escape(text)}</li>" for text, color in legend)
    said = "".join(f"<p class='note'>{escape(note)}</p>" for note in notes)
    return (
        f"<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n<meta name='viewport' content='width=device-width'>\n"
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{said}<ul>{entries}</ul>\n"
        "<div id='lanes'><div><canvas tabindex='0'></canvas></div></div>\n"
        "<p>Turn the wheel to zoom, drag to move, double-click to see everything.</p>\n"
        f"<script type='application/json'>{data}</script>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


_STYLE = """
body { font: 12px Helvetica, Arial, sans-serif; margin: 0; padding: 10px; height: 100vh; box-sizing: border-box; color: #222;
  display: flex; flex-direction: column; }
ul { list-style: none; padding: 0; margin: 0 0 6px; max-height: 22vh; overflow: auto; flex: none; }
li { display: inline-block; margin-right: 14px; overflow-wrap: anywhere; }
li i { display: inline-block; width: 14px; height: 10px; margin-right: 4px; border: 1px solid #666; }
#lanes { flex: 1 1 0; min-height: 0; overflow: hidden auto; }
canvas { display: block; position: sticky; top: 0; width: 100%; cursor: grab; outline-offset: -1px; }
p { color: #666; margin: 6px 0 0; flex: none; }
p.note { color: #9a6700; margin: 0 0 6px; overflow-wrap: anywhere; }
"""

_SCRIPT = """
const info = JSON.parse(document.querySelector('script').textContent), canvas = document.querySelector('canvas');
const room = document.querySelector('#lanes'), whole = room.firstElementChild, pen = canvas.getContext('2d');
const TOP = 22, LANE = 30, LABEL = 70, LETTERS = '11px Helvetica, Arial, sans-serif', SMALL = '10px Helvetica, Arial, sans-serif';
const [first, last] = info.window;
let from = first, to = last, held = null, LEFT = 0, width = 0;
const byLane = info.lanes.map(() => []);
for (const each of info.slices) byLane[each[0]].push(each);
const place = time => LEFT + (time - from) / (to - from || 1) * (width - LEFT);
const middle = lane => TOP + LANE * (lane + 0.5) - room.scrollTop;
// A duration in ms, or a time whose neighbours are `step` away, in the unit that suits `size`.
function inUnit(time, size, step) {
  const [unit, many] = size >= 1000 ? ['s', 1000] : size >= 1 || size === 0 ? ['ms', 1] : ['\\u00b5s', 0.001];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / many) - 1e-9));
  return `${step ? (time / many).toFixed(digits) : Number((time / many).toPrecision(3))} ${unit}`;
}
// As many round times as have room.
function ticks() {
  const least = (to - from || 1) / Math.max(1, Math.floor((width - LEFT) / LABEL));
  const power = 10 ** Math.floor(Math.log10(least)), step = power * [1, 2, 5, 10].find(each => each * power >= least * (1 - 1e-9));
  const found = [];
  for (let number = Math.ceil((from - first) / step - 1e-9); number * step <= to - first; number += 1) found.push(number * step);
  return [found, step];
}
function cut(text, width) {
  if (pen.measureText(text).width <= width) return text;
  let end = text.length;
  while (end && pen.measureText(text.slice(0, end) + '\\u2026').width > width) end -= 1;
  return text.slice(0, end) + '\\u2026';
}
function draw() {
  if (!info.lanes.length) { room.replaceChildren(); return; }
  width = canvas.clientWidth;
  LEFT = Math.min(280, width * 0.35);
  const all = TOP + LANE * info.lanes.length;
  whole.style.height = all + 'px';
  const ratio = window.devicePixelRatio || 1, height = Math.min(room.clientHeight, all);
  canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = height + 'px';
  pen.scale(ratio, ratio); pen.font = LETTERS; pen.textBaseline = 'middle';
  const upper = Math.floor(room.scrollTop / LANE), lower = Math.min(info.lanes.length, Math.ceil((room.scrollTop + height) / LANE));
  const [times, step] = ticks();
  pen.fillStyle = '#EEE';
  for (const time of times) pen.fillRect(place(first + time), TOP, 1, height);
  for (let lane = upper; lane < lower; lane += 1) {
    const drawn = [];
    for (const [, begin, end, look, depth, mark] of byLane[lane]) {
      if (end < from || begin > to) continue;
      const x = Math.max(place(begin), LEFT), right = Math.max(place(end), x + 1);
      if (right <= drawn[depth] && mark !== 'failed') continue;
      drawn[depth] = Math.ceil(right);
      const [text, color] = info.looks[look], size = 24 * 0.7 ** depth, wide = right - x;
      pen.fillStyle = mark === 'failed' && wide < 4 ? '#B22222' : color; pen.fillRect(x, middle(lane) - size / 2, wide, size);
      if (wide < 4) continue;
      pen.setLineDash(mark === 'running' ? [4, 3] : []); pen.strokeStyle = mark === 'failed' ? '#B22222' : mark ? '#555' : '#FFF';
      pen.strokeRect(x, middle(lane) - size / 2, wide, size);
      const free = Math.min(right, width) - x - 5;
      if (free < 18) continue;
      const said = pen.measureText(text).width > free && !text.includes(' ') ? text.split('.').pop() : text;
      pen.fillStyle = '#000'; pen.fillText(cut(said, free), x + 3, middle(lane));
    }
  }
  pen.setLineDash([]); pen.strokeStyle = '#777';
  for (const [lane, left, reader, came] of info.arrows) {
    if (left < from || came > to) continue;
    const x = place(came), y = middle(reader), up = reader > lane ? -4 : 4;
    pen.beginPath(); pen.moveTo(place(left), middle(lane)); pen.lineTo(x, y); pen.moveTo(x - 4, y + up); pen.lineTo(x, y); pen.stroke();
  }
  pen.fillStyle = '#FFF'; pen.fillRect(0, 0, LEFT - 2, height);
  for (let lane = upper; lane < lower; lane += 1) {
    pen.fillStyle = '#222'; pen.font = LETTERS; pen.fillText(cut(info.lanes[lane][0], LEFT - 8), 0, middle(lane) - 6);
    pen.fillStyle = '#777'; pen.font = SMALL; pen.fillText(cut(info.lanes[lane][1], LEFT - 8), 0, middle(lane) + 7);
  }
  pen.fillStyle = '#FFF'; pen.fillRect(0, 0, width, TOP);
  pen.fillStyle = '#222'; pen.font = LETTERS;
  const size = Math.max(Math.abs(from - first), Math.abs(to - first));
  canvas.dataset.times = times.map(time => {
    const text = inUnit(time, size, step), half = pen.measureText(text).width / 2;
    pen.textAlign = 'center'; pen.fillText(text, Math.min(Math.max(place(first + time), LEFT + half), width - half), 10);
    return text;
  }).join('|');
  pen.textAlign = 'left';
}
canvas.addEventListener('wheel', event => {
  event.preventDefault();
  const by = Math.exp(event.deltaY * 0.0015), at = from + (event.offsetX - LEFT) / (width - LEFT) * (to - from);
  from = at - (at - from) * by; to = at + (to - at) * by; draw();
}, { passive: false });
canvas.addEventListener('pointerdown', event => { held = [event.offsetX, event.clientY]; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener('pointerup', () => { held = null; });
canvas.addEventListener('pointermove', event => {
  const lane = Math.floor((event.offsetY - TOP + room.scrollTop) / LANE);
  if (held === null) {
    const near = (to - from) / (width - LEFT) / 2, time = from + (event.offsetX - LEFT) * near * 2;
    const under = (byLane[lane] || []).filter(each => each[1] <= time + near && time - near <= each[2]);
    const said = under.slice(0, 12).map(each => `${info.looks[each[3]][0]}: ${inUnit(each[2] - each[1], each[2] - each[1])}`);
    canvas.title = [...said, ...(under.length > 12 ? [`and ${under.length - 12} more`] : [])].join('\\n');
    return;
  }
  const by = (held[0] - event.offsetX) / (width - LEFT) * (to - from);
  room.scrollTop += held[1] - event.clientY;
  from += by; to += by; held = [event.offsetX, event.clientY]; draw();
});
canvas.addEventListener('dblclick', () => { from = first; to = last; draw(); });
room.addEventListener('scroll', draw);
window.addEventListener('resize', draw);
draw();
"""
