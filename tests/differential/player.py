"""A process with a session, which plays the programs that it is given: a line of JSON each on stdin, the outcomes on stdout.

``python -m tests.differential.player``, with ``DIFFERENTIAL_ENGINE`` in its environment.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
import warnings
from importlib.util import find_spec

from tests.differential.stage import ENGINE, engine, is_at_rest, play

#: The resources of sessions.
TOTAL = {"CPU": 4.0, "GPU": 2.0, "custom": 2.0}


def main() -> None:
    """Until stdin ends."""
    # As a shell starts what is to run in the background, nobody could be interrupted here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    options = {"include_dashboard": find_spec("aiohttp_cors") is not None} if ENGINE == "ray" else {}
    engine.init(
        num_cpus=4,
        num_gpus=2,
        resources={"custom": 2},
        labels={"zone": "here"},
        namespace="programs",
        logging_level=logging.CRITICAL,
        log_to_driver=False,
        **options,
    )
    if ENGINE == "ray":  # its state does not look for the session of its own process
        os.environ["RAY_ADDRESS"] = engine.get_runtime_context().gcs_address
    print("ready", file=answers, flush=True)
    with tempfile.TemporaryDirectory(prefix="differential-") as folder:
        for number, line in enumerate(sys.stdin):
            outcomes = play(json.loads(line), os.path.join(folder, f"p{number}"))
            answer = {"outcomes": outcomes, "is_at_rest": is_at_rest(TOTAL)}
            print(json.dumps(answer), file=answers, flush=True)
    engine.shutdown()


if __name__ == "__main__":
    main()
