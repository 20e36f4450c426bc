"""`JobConfig`, under Ray's name of the module."""

from mray._api.job_config import JobConfig

__all__ = ["JobConfig"]
