"""Programs to read and to run: ``python -m mray.examples`` runs them all, ``python -m mray.examples.NAME`` one.

Each does the same work twice, by ordinary calls (``remote`` and ``get``) and through a compiled graph, and prints both latencies.
They use nothing but the public API, but for `gpu_arrays`. They are modules of the package so that an installed mray has them too.

| name | what |
|---|---|
| `hello_world` | one actor that returns what it is given |
| `image_pipeline` | four actors, one behind the other, over a batch of images |
| `shared_batches` | a loader that makes batches in shared memory, and a trainer that reads them there |
| `asyncio_server` | an asyncio server that answers many clients at once by a graph of two actors |
| `pipeline_parallel` | the layers of a transformer spread over several actors, several micro-batches in flight (needs torch) |
| `tensor_parallel` | matrix products whose weights are split over actors that add up their parts in an allreduce (needs torch) |
| `data_parallel` | training over actors that average their gradients in an allreduce (needs torch) |
| `cluster` | a replica of a model on each machine of a Ray cluster, each with a compiled graph of mray's own |
| `gpu_quickstart` | a tensor from the GPU of one actor to that of another |
| `gpu_pipeline` | four stages that share one GPU, with activations that never leave it |
| `gpu_replay` | a method that replays a CUDA graph over its inputs, which come at fixed addresses |

Those of the GPU run on a pretended one where there is none, which shows how they work and says nothing about speed.
"""

from __future__ import annotations
