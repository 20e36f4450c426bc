"""Programs to read and to run: ``python -m mray.examples`` runs them all, ``python -m mray.examples.NAME`` one.

Each does the same work twice, by ordinary calls (``remote`` and ``get``) and through a compiled graph, and prints both latencies.
They use nothing but the public API. They are modules of the package so that an installed mray has them too.

| name | what |
|---|---|
| `hello_world` | one actor that returns what it is given |
| `image_pipeline` | four actors, one behind the other, over a batch of images |
"""

from __future__ import annotations
