"""Workers import what graphs need when the first graph comes, or when they were to be expected."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.only("mray", reason="how this engine's workers start")

PROGRAM = """
    import sys
    FIRST
    import mray

    @mray.remote
    class A:
        def here(self):
            return "mray._graph.actor.loop" in sys.modules

        def add(self, x):
            return x + 1

        def own(self, other):
            from mray.dag import InputNode
            with InputNode() as inp:
                dag = other.add.bind(inp)
            graph = dag.experimental_compile()
            try:
                return mray.get(graph.execute(5))
            finally:
                graph.teardown()

    mray.init(num_cpus=2, logging_level="ERROR")
    actors = [A.remote() for _ in range(2)]
    print(mray.get([actor.here.remote() for actor in actors]))
    LAST
    mray.shutdown()
"""
COMPILES = """
    from mray.dag import InputNode
    with InputNode() as inp:
        dag = actors[1].add.bind(actors[0].add.bind(inp))
    graph = dag.experimental_compile()
    print(mray.get(graph.execute(1)), mray.get([actor.add.remote(3) for actor in actors]))
    graph.teardown()
    print(mray.get(actors[0].here.remote()))
"""
IN_ACTOR = """
    print(mray.get(actors[0].own.remote(actors[1])))
"""


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("", COMPILES, "[False, False]\n3 [4, 4]\nTrue\n"),
        ("import mray.dag", COMPILES, "[True, True]\n3 [4, 4]\nTrue\n"),
        ("", IN_ACTOR, "[False, False]\n6\n"),
        ("", "len(mray.timeline())", "[False, False]\n"),
    ],
    ids=["compiled later", "expected", "compiled in an actor", "a timeline only"],
)
def test_graphs_work_whether_or_not_they_were_expected(first, last, said):
    program = textwrap.dedent(PROGRAM).replace("FIRST", first).replace("LAST", textwrap.dedent(last))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == (said, 0), done.stderr
