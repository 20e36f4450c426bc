"""Graphs for tests: a short way to write them, and random ones."""

from __future__ import annotations

from hypothesis import strategies as st

from mray._graph.plan import DIRECT, INPUT, Argument, Graph, Source, Step


def make_graph(*steps: tuple[str, tuple[int, ...]], outputs: tuple[int, ...] | None = None, order: tuple[int, ...] = ()) -> Graph:
    """Steps as (actor, numbers of the steps it takes values of; -1 is the input); the last step is the output unless told otherwise.

    `order` gives the bind indices; by default steps are bound in the order of writing.
    """
    made = []
    for number, (actor, sources) in enumerate(steps):
        arguments = tuple(Argument(INPUT if source < 0 else Source(source)) for source in sources)
        made.append(Step(number, actor, f"m{number}", order[number] if order else number, arguments))
    wanted = outputs if outputs is not None else (len(steps) - 1,)
    return Graph(tuple(made), tuple(Argument(Source(output)) for output in wanted), outputs is not None, 1, (), DIRECT)


@st.composite
def random_graphs(draw: st.DrawFn) -> Graph:
    """Graphs of up to 12 steps over up to 4 actors, bound in any order, every step used."""
    count = draw(st.integers(1, 12))
    actors = draw(st.integers(1, 4))
    steps = []
    for number in range(count):
        sources = draw(st.lists(st.integers(-1, number - 1), min_size=1, max_size=3))
        steps.append((f"a{draw(st.integers(0, actors - 1))}", tuple(sources)))
    order = tuple(draw(st.permutations(range(count))))
    used = {source for _actor, sources in steps for source in sources}
    leaves = tuple(number for number in range(count) if number not in used)
    return make_graph(*steps, outputs=leaves, order=order)
