"""The settings of compiled graphs at the time of the import, under Ray's names of module constants."""

from __future__ import annotations

from mray._api.dag_context import DAGContext
from mray._common import settings

_defaults = DAGContext()

DEFAULT_BUFFER_SIZE_BYTES = _defaults.buffer_size_bytes
DEFAULT_GET_TIMEOUT_S = _defaults.get_timeout
DEFAULT_MAX_BUFFERED_RESULTS = _defaults.max_buffered_results
DEFAULT_MAX_INFLIGHT_EXECUTIONS = _defaults.max_inflight_executions
DEFAULT_OVERLAP_GPU_COMMUNICATION = _defaults.overlap_gpu_communication
DEFAULT_READ_ITERATION_TIMEOUT_S = _defaults.read_iteration_timeout
DEFAULT_SUBMIT_TIMEOUT_S = _defaults.submit_timeout
DEFAULT_TEARDOWN_TIMEOUT_S = _defaults.teardown_timeout

RAY_CGRAPH_ENABLE_DETECT_DEADLOCK = True
RAY_CGRAPH_ENABLE_NVTX_PROFILING = settings.CGRAPH_NVTX_PROFILING.get()
RAY_CGRAPH_ENABLE_TORCH_PROFILING = settings.CGRAPH_TORCH_PROFILING.get()
RAY_CGRAPH_ENABLE_PROFILING = RAY_CGRAPH_ENABLE_NVTX_PROFILING or RAY_CGRAPH_ENABLE_TORCH_PROFILING
RAY_CGRAPH_VISUALIZE_SCHEDULE = settings.CGRAPH_VISUALIZE_SCHEDULE.get()
