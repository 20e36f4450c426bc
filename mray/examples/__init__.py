"""Programs to read and to run: ``python -m mray.examples`` runs them all, ``python -m mray.examples.NAME`` one.

Each does the same work twice, by ordinary calls (``remote`` and ``get``) and through a compiled graph, and prints both latencies.
They use nothing but the public API. They are modules of the package so that an installed mray has them too.

| name | what |
|---|---|
| `hello_world` | one actor that returns what it is given |
| `image_pipeline` | four actors, one behind the other, over a batch of images |
| `asyncio_server` | an asyncio server that answers many clients at once by a graph of two actors |
| `pipeline_parallel` | the layers of a transformer spread over several actors, several micro-batches in flight (needs torch) |
| `tensor_parallel` | matrix products whose weights are split over actors that add up their parts in an allreduce (needs torch) |
| `data_parallel` | training over actors that average their gradients in an allreduce (needs torch) |
"""

from __future__ import annotations
