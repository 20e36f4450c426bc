"""Hello world: one actor that returns its argument, called directly and through a compiled graph.

python -m mray.examples.hello_world [executions]
"""

from __future__ import annotations

import sys

import mray
from mray.dag import InputNode
from mray.examples import Comparison, measure, print_comparisons


@mray.remote
class SimpleActor:
    """Returns its messages."""

    def echo(self, message: str) -> str:
        return message


def compare(executions: int = 2000) -> Comparison:
    """Measure both ways with one actor."""
    actor = SimpleActor.remote()
    assert mray.get(actor.echo.remote("hello")) == "hello"
    calls = measure(lambda: mray.get(actor.echo.remote("hello")), executions)

    with InputNode() as message:
        graph = actor.echo.bind(message)  # `bind` instead of `remote`: nothing runs yet
    compiled = graph.experimental_compile()
    try:
        assert mray.get(compiled.execute("hello")) == "hello"
        graph_latency = measure(lambda: mray.get(compiled.execute("hello")), executions)
    finally:
        compiled.teardown()
    return Comparison("hello world, one actor", calls, graph_latency)


def main() -> None:
    """Run the example in its own session."""
    with mray.init():
        print_comparisons([compare(*map(int, sys.argv[1:2]))])


if __name__ == "__main__":
    main()
