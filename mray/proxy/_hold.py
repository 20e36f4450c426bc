"""A hold: what makes a target stay while a variable of this process stands for it.

In the process that uses the variable. It is known to the interpreter by the place of the step by which it began: the step that made the
target, or the one that adopted it when the variable came from elsewhere. It ends when the steps that use it are done, so it counts in
which lanes it was used last.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from mray.proxy._interpreter import TAKE, TOKEN
from mray.proxy._step import Place

if TYPE_CHECKING:
    from mray.proxy._lane import Lane
    from mray.proxy._remote_interpreter import RemoteInterpreter


class Hold:
    """Ends with the variable that has it."""

    __slots__ = ("_holder", "_token", "env", "lane", "place", "uses")

    def __init__(self, env: RemoteInterpreter, lane: Lane, place: Place, holder: Place, token: Any = None) -> None:
        self.env = env
        #: Where it began.
        self.lane = lane
        #: Of the target.
        self.place = place
        self._holder = holder
        #: Lane -> number of the last step that uses it.
        self.uses: dict[int, int] = {holder[0]: holder[1]}
        self._token = token

    def __del__(self) -> None:
        self.env.connection.courier.put((self.env.connection, self.place, self._holder, self.uses))

    def token(self) -> Any:
        """What keeps the target alive while a pickled variable is on its way. Asks the interpreter, the first time."""
        if self._token is None:
            # This thread is in the middle of pickling something: after any call, Ray would take the refs that follow for strays.
            asking = threading.Thread(target=self._ask_token, name="proxy token")
            asking.start()
            asking.join()
        if isinstance(self._token, Exception):
            error, self._token = self._token, None
            raise error
        return self._token

    def _ask_token(self) -> None:
        lane = self.env.lane()
        try:
            if not self.lane.sending:  # else all that came before has been sent
                self.lane.send()
            (self._token,) = lane.answer(lane.ask((TOKEN, *self.place)))
        except Exception as error:
            self._token = error

    def ref(self) -> Any:
        """A ref of the engine to the value; waits for nothing."""
        lane = self.env.lane()
        self.lane.send()
        number = lane.add("pass", (self.env.var_of(self),))
        return lane.ask_ref((TAKE, lane.id, number))

    def pass_on(self) -> Any:
        """A ref of the engine to the value, for another interpreter; waits for nothing."""
        lane = self.env.lane()
        self.lane.send()
        number = lane.add("pass", (self.env.var_of(self),))
        return lane.ask((TAKE, lane.id, number))
