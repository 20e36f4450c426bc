"""The accelerators of a process, and the communicator that a program registers for them."""

from __future__ import annotations

import importlib
import warnings

import pytest


@pytest.fixture
def channels(ray):
    """The module of communicators."""
    pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Ray imports misses libraries of GPUs
        return importlib.import_module(f"{ray.__name__}.experimental.channel")


@pytest.fixture
def accelerators(ray):
    module = importlib.import_module(f"{ray.__name__}.experimental.channel.accelerator_context")
    yield module
    if ray.__name__ == "ray":
        module._global_custom_context = None
    else:
        importlib.import_module("mray._api.accelerator_transport")._registered = None


def test_a_process_without_gpus_has_the_cpu(ray_session, accelerators):
    torch = pytest.importorskip("torch")
    context = accelerators.AcceleratorContext.get()
    assert context.module_name == "cpu"
    assert context.get_accelerator_devices() == [torch.device("cpu")]
    assert not accelerators.is_accelerator_context_registered()
    with context.get_device_context(torch.device("cpu")):
        assert torch.zeros(1).device == torch.device("cpu")


def test_an_accelerator_is_registered_with_its_communicator(ray_session, channels, accelerators):
    body = {name: (lambda self, *args: None) for name in channels.Communicator.__abstractmethods__}
    body["generate_communicator_id"] = classmethod(lambda cls: "made here")
    body["__init__"] = lambda self, *args: setattr(self, "args", args)
    group = type("Group", (channels.Communicator,), body)
    accelerators.register_accelerator_context("cpu", group)
    assert accelerators.is_accelerator_context_registered()
    context = accelerators.AcceleratorContext.get()
    assert context.communicator_cls is group
    assert context.generate_communicator_id() == "made here"
    assert context.create_communicator(2, "id").args == (2, "id")


def test_a_device_that_torch_does_not_know(accelerators, channels):
    with pytest.raises(ImportError):
        accelerators.register_accelerator_context("abacus", channels.Communicator)


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("what", [None, object, "nccl"])
def test_a_communicator_that_is_none(accelerators, what):
    with pytest.raises(TypeError, match="derived from Communicator"):
        accelerators.register_accelerator_context("cpu", what)
    assert not accelerators.is_accelerator_context_registered()


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("verb", ["generate_communicator_id", "create_communicator"])
def test_a_context_without_a_communicator_makes_none(accelerators, verb):
    context = accelerators.AcceleratorContext("cpu", None)
    with pytest.raises(RuntimeError, match="No communicator is registered for 'cpu': register_accelerator_context names one"):
        getattr(context, verb)()
