"""Runtime environments, under Ray's name of the module."""

from mray._api.runtime_env import RuntimeEnv, RuntimeEnvConfig

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]
