"""Errors before the first request to a cluster: no Ray here, no mray there, another mray there. No cluster."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def run(program: str, *words: str) -> str:
    """The last line that a program of its own printed on stderr."""
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr.strip().splitlines()[-1]


def test_without_ray_the_address_of_a_cluster_says_what_to_install() -> None:
    text = run("import sys; sys.modules['ray'] = None\nimport mray\nmray.init(address='ray:auto')")
    assert text.startswith("ImportError")
    assert 'pip install "mray[ray]"' in text


def test_local_mode_and_a_cluster_exclude_each_other() -> None:
    text = run("import mray\nmray.init(address='ray:auto', local_mode=True)")
    assert "choose one" in text


def shipped() -> str:
    """A function as it goes to a worker."""
    ray_pickle = pytest.importorskip("ray").cloudpickle
    from mray._backends.ray.ray_backend import ARRIVAL
    from mray._backends.ray.shipped_code import Shipped

    return base64.b64encode(ray_pickle.dumps(Shipped(len, ray_pickle.dumps(len), ARRIVAL))).decode()


def test_a_node_without_mray_says_so() -> None:
    text = run("import base64, pickle, sys, ray\nsys.modules['mray'] = None\npickle.loads(base64.b64decode(sys.argv[1]))", shipped())
    assert "has no mray" in text
    assert "install the same version on every node" in text


def test_a_node_with_another_version_says_so() -> None:
    program = """
import base64, pickle, sys
import mray._common.version
mray._common.version.__version__ = "0.0.1"
pickle.loads(base64.b64decode(sys.argv[1]))
"""
    text = run(program, shipped())
    assert "has mray 0.0.1, and the driver has mray" in text
