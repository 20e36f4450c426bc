"""A pipeline of four actors over a batch of images: augment, smooth, find edges, shrink.

    python -m mray.examples.image_pipeline [executions] [picture.ppm]

The batch repeats one picture (a portrait of Grace Hopper; public domain, US Navy) and travels as a numpy array in shared memory. If a
picture is named, the result is written to ``edges.ppm``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

import mray
from mray.dag import InputNode
from mray.examples import Comparison, measure, print_comparisons

Images = npt.NDArray[np.uint8]  # (image, row, column[, colour])
PICTURE = Path(__file__).with_name("portrait.ppm")
BATCH = 16


@mray.remote
class Augment:
    """Mirrors every other image and varies the brightness."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def apply(self, images: Images) -> Images:
        """Return a new batch; the argument is read-only shared memory."""
        shift = self.random.integers(-20, 20, len(images), dtype=np.int16)[:, None, None, None]
        augmented: Images = np.clip(images.astype(np.int16) + shift, 0, 255).astype(np.uint8)
        augmented[::2] = augmented[::2, :, ::-1]
        return augmented


@mray.remote
class Smooth:
    """Converts to grey and blurs slightly."""

    def apply(self, images: Images) -> Images:
        """Weight with 1 2 1 along rows and columns."""
        grey = (images.astype(np.uint16) @ np.array([77, 150, 29], dtype=np.uint16)) >> 8
        rows = (grey[:, :-2] + 2 * grey[:, 1:-1] + grey[:, 2:]) >> 2
        smooth: Images = ((rows[:, :, :-2] + 2 * rows[:, :, 1:-1] + rows[:, :, 2:]) >> 2).astype(np.uint8)
        return smooth


@mray.remote
class Edges:
    """Computes the change of brightness from pixel to pixel."""

    def apply(self, images: Images) -> Images:
        """Sum the absolute differences in both directions, doubled and clipped."""
        grey = images.astype(np.int16)
        change = np.abs(grey[:, 2:, 1:-1] - grey[:, :-2, 1:-1]) + np.abs(grey[:, 1:-1, 2:] - grey[:, 1:-1, :-2])
        edges: Images = np.clip(2 * change, 0, 255).astype(np.uint8)
        return edges


@mray.remote
class Shrink:
    """Halves the size."""

    def apply(self, images: Images) -> Images:
        count, height, width = images.shape
        blocks = images[:, : height // 2 * 2, : width // 2 * 2].reshape(count, height // 2, 2, width // 2, 2)
        small: Images = blocks.mean(axis=(2, 4)).astype(np.uint8)
        return small


def load_batch(picture: Path = PICTURE) -> Images:
    """`BATCH` copies of a binary PPM picture without comments in its head."""
    kind, width, height, most, pixels = picture.read_bytes().split(maxsplit=4)
    if kind != b"P6" or most != b"255":
        raise ValueError(f"{picture} is not a binary PPM picture (P6) with 8 bits per colour")
    size = int(width), int(height)
    image = np.frombuffer(pixels, dtype=np.uint8, count=size[0] * size[1] * 3).reshape(size[1], size[0], 3)
    return np.stack([image] * BATCH)


def save_picture(image: Images, picture: Path) -> None:
    """Write one grey image as PPM."""
    height, width = image.shape
    picture.write_bytes(b"P6\n%d %d\n255\n" % (width, height) + np.repeat(image[:, :, None], 3, axis=2).tobytes())


def compare(executions: int = 100, batch: Images | None = None, result: Path | None = None) -> Comparison:
    """Measure both ways; write the first resulting image to `result`."""
    images = load_batch() if batch is None else batch
    stages = [Augment.remote(seed=0), Smooth.remote(), Edges.remote(), Shrink.remote()]

    def call() -> Images:
        value: Images | mray.ObjectRef[Images] = images
        for stage in stages:
            value = stage.apply.remote(value)  # a ref, whose value the next actor gets
        assert isinstance(value, mray.ObjectRef)
        processed: Images = mray.get(value)
        return processed

    assert call().shape == (len(images), (images.shape[1] - 4) // 2, (images.shape[2] - 4) // 2)
    calls = measure(call, executions)

    with InputNode() as node:
        graph = node
        for stage in stages:
            graph = stage.apply.bind(graph)
    compiled = graph.experimental_compile()
    try:
        processed = mray.get(compiled.execute(images))
        if result is not None:
            save_picture(processed[0], result)
        graph_latency = measure(lambda: mray.get(compiled.execute(images)), executions)
    finally:
        compiled.teardown()
    return Comparison(f"four actors, {len(images)} images", calls, graph_latency)


def main() -> None:
    """Run the example in its own session."""
    executions = int(sys.argv[1]) if sys.argv[1:] else 100
    batch, result = (load_batch(Path(sys.argv[2])), Path("edges.ppm")) if sys.argv[2:] else (None, None)
    with mray.init():
        print_comparisons([compare(executions, batch, result)])


if __name__ == "__main__":
    main()
