"""The program of ``tools/differential``: draws programs, plays them on both engines, makes differences small and prints them."""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings

from tests.differential.engines import Engine
from tests.differential.kinds import KINDS
from tests.differential.known import differences, kind_of

Json = Any
RECORDED = Path(__file__).parent / "recorded"
#: Seconds and plays that making one difference small may take.
SMALL_SECONDS, SMALL_PLAYS = 15.0, 40


class Hunt:
    """Programs drawn, played on both, and what was found."""

    def __init__(self, ray: Engine, mray: Engine, ends: float, keep: Path | None = None) -> None:
        self.keep = keep
        self.ray = ray
        self.mray = mray
        self.ends = ends
        self.played = 0
        self.steps = 0
        #: Word for a difference -> how often it came.
        self.found: dict[str, int] = {}
        self.unsteady = 0

    def play(self, program: Json) -> tuple[Any, Any]:
        """Outcomes of Ray and mray, which run beside each other."""
        self.ray.send(program)
        of_mray = self.mray.play(program)
        return self.ray.receive(), of_mray

    def try_one(self, program: Json) -> None:
        of_ray, of_mray = self.play(program)
        self.played += 1
        self.steps += len(program["steps"])
        if self.played % 50 == 0:
            print(f"({self.played} programs, {max(self.ends - time.monotonic(), 0):.0f} s left)", flush=True)
        found = differences(program, of_ray, of_mray)
        if self.keep is not None and not found and not isinstance(of_ray, str):
            with self.keep.open("a") as file:
                file.write(json.dumps({**program, "outcomes": of_ray}) + "\n")
        for number, expected, outcome in found[:1]:
            word = self.word(program, number, expected, outcome)
            self.found[word] = self.found.get(word, 0) + 1
            if self.found[word] == 1:
                self.show(program, word)

    @staticmethod
    def word(program: Json, number: int, expected: Json, outcome: Json) -> str:
        return f"{program['kind']}: {kind_of(program['steps'][number] if number >= 0 else {}, expected, outcome)}"

    def first_word(self, program: Json) -> str | None:
        for number, expected, outcome in differences(program, *self.play(program))[:1]:
            return self.word(program, number, expected, outcome)
        return None

    def show(self, program: Json, word: str) -> None:
        """Make a program small that differs, and print it."""
        if self.first_word(program) != word:
            self.unsteady += 1
            del self.found[word]
            print(f"--- it did not come again: {word}\n{json.dumps(program)}\n", flush=True)
            return
        small = self.small(program, word)
        of_ray, of_mray = self.play(small)
        print(f"--- {word}")
        for number, step in enumerate(small["steps"]):
            print(f"  {number}: {json.dumps(step)}")
        for number, expected, outcome in differences(small, of_ray, of_mray):
            print(f"  step {number}\n    ray:  {json.dumps(expected)}\n    mray: {json.dumps(outcome)}")
        print(flush=True)

    def small(self, program: Json, word: str) -> Json:
        """A program with fewer steps and fewer words that still differs so."""
        ends, plays = time.monotonic() + SMALL_SECONDS, 0
        changed = True
        while changed:
            changed = False
            for candidate in smaller(program):
                if time.monotonic() > ends or plays > SMALL_PLAYS:
                    return program
                plays += 1
                if self.first_word(candidate) == word:
                    program, changed = candidate, True
                    break
        return program


def smaller(program: Json) -> Iterator[Json]:
    """Programs with one thing less."""
    steps = program["steps"]
    for number in reversed(range(len(steps))):
        yield {**program, "steps": steps[:number] + steps[number + 1 :]}
    for number in range(len(steps)):
        for part in ("options", "kwargs", "args", "what"):
            here = steps[number].get(part)
            if isinstance(here, dict) and "$" not in here:
                for key in here:
                    yield _with(program, number, part, {name: value for name, value in here.items() if name != key})
            elif isinstance(here, list):
                for index in range(len(here)):
                    if isinstance(here[index], dict) and here[index].get("$") == "body":
                        inner = here[index]["v"]
                        for gone in range(len(inner)):
                            shorter = {"$": "body", "v": inner[:gone] + inner[gone + 1 :]}
                            yield _with(program, number, part, [*here[:index], shorter, *here[index + 1 :]])
                    else:
                        yield _with(program, number, part, here[:index] + here[index + 1 :])


def _with(program: Json, number: int, part: str, value: Json) -> Json:
    changed = copy.deepcopy(program)
    changed["steps"][number][part] = value
    return changed


def draw(kind: str, seed: int, count: int) -> Iterator[Json]:
    """So many programs of a kind."""
    drawn: list[Json] = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(KINDS[kind]())
    def take(program: Json) -> None:
        drawn.append(program)

    take()
    yield from drawn


def programs(kinds: list[str], seed: int, each: int) -> Iterator[Json]:
    """Programs of all kinds in turn, for ever: none twice."""
    seen: set[str] = set()
    while True:
        drawn = [draw(kind, seed, each) for kind in kinds]
        for batch in zip(*drawn, strict=False):
            for program in batch:
                text = json.dumps(program, sort_keys=True)
                if text not in seen:
                    seen.add(text)
                    yield program
        seed += 1


def record(hunt: Hunt, kinds: list[str], seed: int, count: int) -> None:
    """Write programs with Ray's outcomes: those that come again, and that mray has too."""
    RECORDED.mkdir(exist_ok=True)
    for kind in kinds:
        kept: list[Json] = []
        for program in programs([kind], seed, 3 * count):
            outcomes, of_mray = hunt.play(program)
            found = differences(program, outcomes, of_mray)
            if found:
                print(f"left out: {hunt.word(program, *found[0])}", flush=True)
            elif not isinstance(outcomes, str) and hunt.ray.play(program) == outcomes:
                kept.append({**program, "outcomes": outcomes})
            if len(kept) == count:
                break
        write(kind, kept)
        print(f"{kind}: {len(kept)} programs", flush=True)


def record_kept(hunt: Hunt, kinds: list[str], file: Path, count: int) -> None:
    """Write those of the programs that were kept which show most that others do not, soonest; they must come again."""
    kept: dict[str, list[Json]] = {}
    for line in file.read_text().splitlines():
        program = json.loads(line)
        kept.setdefault(program["kind"], []).append(program)
    for kind in kinds:
        timed: list[tuple[float, Json]] = []
        for program in kept.get(kind, []):
            begin = time.monotonic()
            if not differences(program, program["outcomes"], hunt.mray.play(program)):
                timed.append((time.monotonic() - begin, program))
        chosen: list[Json] = []
        shown: set[str] = set()
        while timed and len(chosen) < count:
            best = max(timed, key=lambda each: len(features(each[1]) - shown) / (0.3 + each[0]))
            timed.remove(best)
            seconds, program = best
            if hunt.ray.play({key: each for key, each in program.items() if key != "outcomes"}) == program["outcomes"]:
                chosen.append(program)
                shown |= features(program)
                print(f"{kind}: {seconds:.2f} s, {len(program['steps'])} steps", flush=True)
        if chosen:
            write(kind, chosen)


def features(program: Json) -> set[str]:
    """Words for what a program shows: which step had which outcome."""
    found = set()
    for step, outcome in zip(program["steps"], program["outcomes"], strict=True):
        what = [step.get(key) for key in ("do", "name", "m", "how", "options", "kwargs")]
        found.add(json.dumps([what, outcome.get("error"), str(outcome.get("value"))[:30]], sort_keys=True))
    return found


def write(kind: str, kept: list[Json]) -> None:
    lines = ",\n".join(json.dumps(program) for program in kept)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    (RECORDED / f"{kind}.json").write_text(f'{{"python": "{version}", "programs": [\n{lines}\n]}}\n')


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/differential", description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=10, help="how long to look (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="others for each (default: 0)")
    parser.add_argument("--only", action="append", choices=list(KINDS), help="a kind of programs; may be repeated")
    parser.add_argument("--record", type=int, metavar="COUNT", help="write so many programs of each kind with Ray's outcomes")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="write the programs on which both agree, a line each, with Ray's outcomes"
    )
    parser.add_argument("--ray-python", default=sys.executable, help="a Python that has ray")
    parser.add_argument("--mray-python", default=sys.executable, help="a Python with mray's test requirements")
    options = parser.parse_args()
    kinds = options.only or list(KINDS)
    with Engine("ray", options.ray_python) as ray, Engine("mray") as mray:
        hunt = Hunt(ray, mray, time.monotonic() + 60 * options.minutes, options.keep)
        if options.record and options.keep:
            record_kept(hunt, kinds, options.keep, options.record)
            return 0
        if options.record:
            record(hunt, kinds, options.seed, options.record)
            return 0
        for program in programs(kinds, options.seed, 40):
            if time.monotonic() > hunt.ends:
                break
            hunt.try_one(program)
        print(f"{hunt.played} programs with {hunt.steps} steps; {ray.sessions} sessions of Ray, {mray.sessions} of mray")
        print(f"{len(hunt.found)} differences, {hunt.unsteady} that did not come again")
        for word, count in sorted(hunt.found.items(), key=lambda item: -item[1]):
            print(f"  {count:4} {word}")
        return 1 if hunt.found else 0


if __name__ == "__main__":
    sys.exit(main())
