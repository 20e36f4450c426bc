"""A pipeline of cosmos-xenna's of two stages, streaming; twice. Needs ``cosmos-xenna tqdm psutil tabulate pulp``.

mray run bench/tool_work/xenna_pipeline.py      # or python, on Ray itself
"""

import json
import time

begun = time.perf_counter()
import cosmos_xenna.pipelines.v1 as pipelines  # noqa: E402
import ray  # noqa: E402

imported = time.perf_counter()


class Square(pipelines.Stage):
    stage_batch_size = 4
    required_resources = pipelines.Resources(cpus=0.5, gpus=0)

    def process_data(self, in_data):
        return [value * value for value in in_data]


class Add(Square):
    def setup(self, worker_metadata):
        self.more = 1

    def process_data(self, in_data):
        return [value + self.more for value in in_data]


def run() -> list[int]:
    spec = pipelines.PipelineSpec(
        input_data=list(range(400)),
        stages=[pipelines.StageSpec(Square(), num_workers=1), pipelines.StageSpec(Add(), num_workers=1)],
        config=pipelines.PipelineConfig(
            return_last_stage_outputs=True, mode_specific=pipelines.StreamingSpecificSpec(autoscale_interval_s=30)
        ),
    )
    return pipelines.run_pipeline(spec)


result = [sum(run())]
between = time.perf_counter()
result.append(sum(run()))
ended = time.perf_counter()
seconds = {"import": imported - begun, "first": between - imported, "second": ended - between, "whole": ended - begun}
print(json.dumps({"ray": ray.__version__, **{name: round(value, 2) for name, value in seconds.items()}, "result": result}))
