"""AutoGluon's bagging: six folds of LightGBM, each fitted in a task of Ray's. Needs ``autogluon.tabular[ray,lightgbm]``.

MRAY_RAY_VERSION=2.58.1 mray run bench/tool_work/autogluon_bagging.py      # it takes no newer Ray; or python, on Ray itself
"""

import json
import tempfile
import time

begun = time.perf_counter()
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import ray  # noqa: E402
from autogluon.tabular import TabularPredictor  # noqa: E402

imported = time.perf_counter()
random = np.random.default_rng(0)
rows = pd.DataFrame(random.normal(size=(4000, 8)), columns=[f"x{number}" for number in range(8)])
rows["kind"] = random.integers(0, 5, len(rows)).astype(str)
rows["label"] = ((rows.x0 * rows.x1 + rows.x2 > 0.3) ^ (rows.kind == "3")).astype(int)
train, test = rows[:3000], rows[3000:]
with tempfile.TemporaryDirectory() as folder:
    fitting = time.perf_counter()
    predictor = TabularPredictor("label", path=folder, verbosity=0).fit(
        train,
        hyperparameters={"GBM": {"num_boost_round": 60, "ag_args_fit": {"num_cpus": 1}}},
        num_bag_folds=6,
        num_bag_sets=1,
        num_stack_levels=0,
        dynamic_stacking=False,
        num_cpus=2,
        num_gpus=0,
        fit_weighted_ensemble=False,
        ag_args_ensemble={"fold_fitting_strategy": "parallel_local"},
    )
    fitted = time.perf_counter()
    result = [predictor.evaluate(test, silent=True)["accuracy"], float(predictor.predict_proba(test)[1].sum())]
seconds = {"import": imported - begun, "fit": fitted - fitting, "whole": time.perf_counter() - begun}
print(json.dumps({"ray": ray.__version__, **{name: round(value, 2) for name, value in seconds.items()}, "result": result}))
