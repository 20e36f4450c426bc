"""Damages of bytes."""

from __future__ import annotations

from random import Random

#: Counts and words that readers stumble over.
_NUMBERS = [number.to_bytes(8, "little") for number in (0, 1, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 64) - 1)]


def changed(whole: bytes, random: Random, own_from: int | None = None) -> bytes:
    """A message with some bytes flipped, cut off, doubled, moved or added; behind `own_from` bytes it stays as it is."""
    head, own = bytearray(whole[:own_from]), b"" if own_from is None else whole[own_from:]
    for _ in range(random.randint(1, 3)):
        start, end = sorted((random.randint(0, len(head)), random.randint(0, len(head))))
        kind = random.randrange(4 if own_from is not None else 8)
        if kind < 2 and head:
            head[random.randrange(len(head))] ^= 1 << random.randrange(8)
        elif kind < 4 and head:
            at = random.randrange(len(head))
            number = random.choice(_NUMBERS)[: min(random.choice((1, 2, 4, 8)), len(head) - at)]
            head[at : at + len(number)] = number
        elif kind == 4:
            del head[start:]
        elif kind == 5:
            del head[start:end]
        elif kind == 6:
            head[start:start] = head[start:end]
        else:
            head += random.randbytes(random.randint(1, 20))
    return bytes(head) + own
