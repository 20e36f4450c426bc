"""Pictures as one HTML page without other files: drag to move, turn the wheel to zoom, point at a box to see its edges. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def page(title: str, pictures: Sequence[tuple[str, str]]) -> str:
    """A page with pictures: a heading and SVG each."""
    sections = "\n".join(
        f"<section><h2>{escape(heading)}</h2><div class='picture' tabindex='0'>\n{picture}</div></section>" for heading, picture in pictures
    )
    return (
        f"<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n"
        f"</head>\n<body>\n<p>Drag to move, turn the wheel to zoom, double-click to see everything.</p>\n{sections}\n"
        f"<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


_STYLE = """
body { font-family: Helvetica, Arial, sans-serif; margin: 12px; color: #222; }
h2 { font-size: 15px; margin: 12px 0 4px; }
p { font-size: 12px; color: #666; margin: 0; }
.picture { border: 1px solid #ccc; height: 80vh; overflow: hidden; cursor: grab; }
.picture svg { width: 100%; height: 100%; }
.picture .faded { opacity: 0.15; }
"""

_SCRIPT = """
for (const frame of document.querySelectorAll('.picture')) {
  const svg = frame.querySelector('svg'), whole = svg.getAttribute('viewBox').split(' ').map(Number);
  let view = [...whole], held = null;
  const show = () => svg.setAttribute('viewBox', view.join(' '));
  const scale = () => Math.max(view[2] / frame.clientWidth, view[3] / frame.clientHeight);
  frame.addEventListener('wheel', event => {
    event.preventDefault();
    const by = Math.exp(event.deltaY * 0.0015), box = frame.getBoundingClientRect();
    const right = (event.clientX - box.left) / box.width, down = (event.clientY - box.top) / box.height;
    view = [view[0] + view[2] * (1 - by) * right, view[1] + view[3] * (1 - by) * down, view[2] * by, view[3] * by];
    show();
  }, { passive: false });
  frame.addEventListener('pointerdown', event => { held = [event.clientX, event.clientY]; frame.setPointerCapture(event.pointerId); });
  frame.addEventListener('pointerup', () => { held = null; });
  frame.addEventListener('pointermove', event => {
    if (!held) return;
    view[0] -= (event.clientX - held[0]) * scale();
    view[1] -= (event.clientY - held[1]) * scale();
    held = [event.clientX, event.clientY];
    show();
  });
  frame.addEventListener('dblclick', () => { view = [...whole]; show(); });
  const boxes = [...svg.querySelectorAll('.box')], lines = [...svg.querySelectorAll('.edge, .label')];
  for (const box of boxes) {
    box.addEventListener('pointerenter', () => {
      const number = box.dataset.number;
      const mine = lines.filter(line => line.dataset.source === number || line.dataset.target === number);
      const near = new Set([number, ...mine.flatMap(line => [line.dataset.source, line.dataset.target])]);
      if (!mine.length) return;
      for (const each of boxes) each.classList.toggle('faded', !near.has(each.dataset.number));
      for (const line of lines) line.classList.toggle('faded', !mine.includes(line));
    });
    box.addEventListener('pointerleave', () => { for (const each of [...boxes, ...lines]) each.classList.remove('faded'); });
  }
}
"""
