"""An error that nobody asks for is told in the log when its last ref goes; one that somebody has seen is not."""

from __future__ import annotations

import asyncio
import gc
import logging
import time

import pytest


class Told(logging.Handler):
    """The lines of the runtime's loggers about unhandled errors."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.texts = []

    def emit(self, record):
        text = record.getMessage()
        if "Unhandled error" in text:
            self.texts.append(text)

    def names(self, word):
        return any(word in text for text in self.texts)


@pytest.fixture
def told():
    handler = Told()
    for name in ("ray", "mray"):
        logging.getLogger(name).addHandler(handler)
    yield handler
    for name in ("ray", "mray"):
        logging.getLogger(name).removeHandler(handler)


@pytest.fixture
def fails(ray_session):
    @ray_session.remote(num_cpus=0)
    def fails(word):
        raise ValueError(word)

    return fails


@pytest.fixture
def until_told(told, fails, eventually):
    def wait(*words):
        """Wait for these; what was to be told before the last one has been told then."""
        fails.remote("the last one")
        gc.collect()
        eventually(lambda: told.names("the last one") and all(told.names(word) for word in words))

    return wait


def test_the_error_of_a_call_whose_ref_is_dropped_is_told(ray_session, told, fails, until_told):
    fails.remote("dropped at once")
    until_told("dropped at once")
    (text,) = [text for text in told.texts if "dropped at once" in text]
    assert "IGNORE_UNHANDLED_ERRORS=1" in text
    assert "fails()" in text and "ValueError" in text  # with the remote traceback


def test_the_errors_of_methods_and_of_several_values_are_told(ray_session, told, fails, until_told):
    @ray_session.remote(num_cpus=0)
    class Actor:
        def fails(self, word):
            raise KeyError(word)

        async def later(self, word):
            raise KeyError(word)

    @ray_session.remote(num_returns=2, num_cpus=0)
    def both():
        raise ValueError("one of two")

    actor = Actor.remote()
    actor.fails.remote("of a method")
    actor.later.remote("of a coroutine")
    first, second = both.remote()
    with pytest.raises(ValueError, match="one of two"):
        ray_session.get(first)
    ray_session.wait([second])
    _first, unseen = both.remote()
    with pytest.raises(ValueError, match="one of two"):
        ray_session.get(_first)
    del first, second, unseen
    until_told("of a method", "of a coroutine", "one of two")


def test_what_depends_on_an_error_tells_it_for_both(ray_session, told, fails, until_told):
    @ray_session.remote(num_cpus=0)
    def passes_on(value):
        return value

    passes_on.remote(fails.remote("through an argument"))
    until_told("through an argument")
    texts = [text for text in told.texts if "through an argument" in text]
    assert len(texts) == 1
    assert "passes_on()" in texts[0]


def test_an_error_that_somebody_has_seen_is_not_told(ray_session, told, fails, until_told):
    @ray_session.remote(num_cpus=0)
    def asks(refs):
        with pytest.raises(ValueError, match="seen"):
            ray_session.get(refs[0])

    @ray_session.remote(num_cpus=0)
    def passes_on(value):
        return value

    with pytest.raises(ValueError, match="seen by get"):
        ray_session.get(fails.remote("seen by get"))
    ref = fails.remote("seen by wait")
    assert ray_session.wait([ref])[0] == [ref]
    future = fails.remote("seen by a future").future()
    assert isinstance(future.exception(), ValueError)
    with pytest.raises(ValueError, match="seen through an argument"):
        ray_session.get(passes_on.remote(fails.remote("seen through an argument")))
    borrowed = fails.remote("seen by a borrower")
    ray_session.get(asks.remote([borrowed]))

    async def awaits():
        await fails.remote("seen by await")

    with pytest.raises(ValueError, match="seen by await"):
        asyncio.run(awaits())
    del ref, future, borrowed
    until_told()
    assert not told.names("seen")


def test_what_failed_before_anybody_asked_is_seen_late(ray_session, told, fails, until_told):
    @ray_session.remote(num_cpus=0)
    class Fails:
        def fails(self, word):
            raise ValueError(word)

        def ends(self):
            return True

    actor = Fails.remote()
    refs = [actor.fails.remote(f"seen late {number}") for number in range(3)]
    never = actor.fails.remote("never looked at")
    assert ray_session.get(actor.ends.remote())  # they have all been answered
    ray_session.wait(refs[:1])
    with pytest.raises(ValueError, match="seen late 1"):
        ray_session.get(refs[1:])
    del refs, never
    until_told("never looked at")
    assert not told.names("seen late")


def test_a_call_that_is_cancelled_is_not_told_of(ray_session, told, fails, until_told):
    @ray_session.remote(num_cpus=0)
    def sleeps():
        time.sleep(100)

    @ray_session.remote(num_cpus=0)
    class Sleeps:
        running = 0

        async def sleeps(self):
            self.running += 1
            try:
                await asyncio.sleep(100)
            finally:
                self.running -= 1

        async def streams(self):
            yield "an item"
            await self.sleeps()

        async def until(self, running):
            while self.running != running:
                await asyncio.sleep(0.01)

    actor = Sleeps.remote()
    items = actor.streams.options(num_returns="streaming").remote()
    refs = [sleeps.remote(), actor.sleeps.remote(), items]
    ray_session.get(actor.until.remote(2))
    for ref in refs:
        ray_session.cancel(ref)
    ray_session.get(actor.until.remote(0))
    del ref, refs, items
    until_told()
    assert not told.names("sleep")


def test_a_variable_turns_it_off(run_program):
    done = run_program(
        """
        import ENGINE as ray

        ray.init(num_cpus=1, include_dashboard=False)

        @ray.remote
        def fails():
            raise ValueError("is not told")

        @ray.remote
        def fine():
            pass

        fails.remote()
        ray.get(fine.remote())
        ray.get(fine.remote())
        """,
        env={"RAY_IGNORE_UNHANDLED_ERRORS": "1"},
    )
    assert "is not told" not in done.stderr
