"""mray in the test suites of others: sessions for tests, what they leave behind, what hangs.

::

    pytest ──entry point──▶ pytest_mray (options, fixtures, hooks by name) ──first use──▶ Run ──▶ leaks, stacks
                                                                                          └──▶ mray.init, mray.util.testing.reset

For whoever writes tests of code that uses mray, with pytest. `mray_session` gives a session that is started once and reset after each test,
`mray_fresh` one for each test. Tests that use them are checked for what they leave behind, and the stacks of all processes are printed when
a test's time is nearly up. Each process of a run has sessions of its own, so pytest-xdist needs nothing.

mray's own suite uses the same parts.

Rejected: a session that is reset before each test instead of after. What a test leaves would be seen by whoever comes next, with another
test's name on it.
"""

from __future__ import annotations

from mray.pytest_plugin.leaks import Belongings, assert_nothing_left
from mray.pytest_plugin.run import Run

__all__ = ["Belongings", "Run", "assert_nothing_left"]
