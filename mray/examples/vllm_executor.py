"""vLLM's workers as actors of mray: ``LLM(..., distributed_executor_backend="mray.examples.vllm_executor.MrayExecutor")``.

    engine of vLLM ── (method, arguments, rank that answers) ──▶ every worker ── the value of that rank, or of all ──▶ engine

A request goes to all workers through one compiled graph, instead of vLLM's ring in shared memory, whose readers never sleep. Tensors
between the ranks go through torch.distributed. Needs vLLM (tried with 0.33).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import cloudpickle
from vllm.platforms import current_platform
from vllm.utils.network_utils import get_distributed_init_method, get_open_port
from vllm.v1.executor.abstract import Executor
from vllm.v1.serial_utils import run_method
from vllm.v1.worker.worker_base import WorkerWrapperBase

import mray
from mray.dag import InputNode, MultiOutputNode


@mray.remote
class VllmRank:
    """The process of one vLLM worker."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.wrapper = WorkerWrapperBase(rpc_rank=rank)

    def gpus(self) -> list[Any]:
        return list(mray.get_gpu_ids())

    def call(self, request: tuple[str | bytes, tuple[Any, ...], dict[str, Any], int | None]) -> Any:
        """Returns None unless this rank is to answer."""
        method, args, kwargs, answering = request
        result = run_method(self.wrapper, method, args, kwargs)
        if answering not in (None, self.rank):
            return None
        return result.get_output() if hasattr(result, "get_output") else result


class MrayExecutor(Executor):  # type: ignore[misc]
    """One actor for each worker, and a graph to all of them."""

    supports_pp = True

    def _init_executor(self) -> None:
        parallel, gpus = self.parallel_config, current_platform.is_cuda_alike()
        mray.init(ignore_reinit_error=True, logging_level="ERROR")
        world = range(parallel.world_size)
        # Not restarted, since a graph ends with its actors; vLLM restarts its engine.
        self.ranks = [VllmRank.options(num_cpus=0, num_gpus=int(gpus), max_restarts=0).remote(rank) for rank in world]
        with InputNode() as request:
            answers = [rank.call.bind(request) for rank in self.ranks]
        self.graph = MultiOutputNode(answers).experimental_compile(_max_inflight_executions=self.max_concurrent_batches * 2 + 1)
        self.answering = parallel.world_size - parallel.tensor_parallel_size
        if gpus:  # for all its workers
            visible = ",".join(str(gpu) for found in mray.get([rank.gpus.remote() for rank in self.ranks]) for gpu in found)
            self.collective_rpc("update_environment_variables", args=([{"CUDA_VISIBLE_DEVICES": visible} for _ in world],))
        address = get_distributed_init_method("127.0.0.1", get_open_port())
        workers = [
            {
                "vllm_config": self.vllm_config,
                "local_rank": rank,
                "rank": rank,
                "distributed_init_method": address,
                "is_driver_worker": rank % parallel.tensor_parallel_size == 0,
            }
            for rank in world
        ]
        for method, args in (("init_worker", (workers,)), ("init_device", ()), ("load_model", ())):
            self.collective_rpc(method, args=args)

    @property
    def max_concurrent_batches(self) -> int:
        return 2 if self.scheduler_config.async_scheduling else int(self.parallel_config.pipeline_parallel_size)

    def collective_rpc(
        self,
        method: str | Callable[..., Any],
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
        answering: int | None = None,
    ) -> Any:
        """The values of all ranks, or of the rank `answering`; with `non_block` a future."""
        called = method if isinstance(method, str) else cloudpickle.dumps(method)
        refs = self.graph.execute((called, args, kwargs or {}, answering))

        def value(seconds: float | None = None) -> Any:
            return mray.get(refs if answering is None else refs[answering], timeout=seconds)

        return _Later(value) if non_block else value(timeout)

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        return self.collective_rpc("execute_model", args=(scheduler_output,), non_block=non_block, answering=self.answering)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        return self.collective_rpc("sample_tokens", args=(grammar_output,), non_block=non_block, answering=self.answering)

    def take_draft_token_ids(self) -> Any:
        return self.collective_rpc("take_draft_token_ids", answering=self.answering)

    def check_health(self) -> None:
        """Raise the error of a worker's death, if one has died."""
        self.collective_rpc("check_health", timeout=10)

    def shutdown(self) -> None:
        if graph := self.__dict__.pop("graph", None):
            graph.teardown()
            for rank in self.ranks:
                mray.kill(rank)

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        return True


class _Later(Future[Any]):
    """Fetched by the thread that asks for the value."""

    def __init__(self, take: Callable[..., Any]) -> None:
        super().__init__()
        self._take: Callable[..., Any] | None = take

    def result(self, timeout: float | None = None) -> Any:
        take, self._take = self._take, None
        if take is not None:
            try:
                self.set_result(take(timeout))
            except Exception as error:
                self.set_exception(error)
        return super().result()


__all__ = ["MrayExecutor"]
