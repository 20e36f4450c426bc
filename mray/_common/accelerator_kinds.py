"""Kinds of accelerators besides GPUs: a task or actor requests them by the resource's name, and sees its own by a variable.

Names and rules are Ray's. ``resources={"TPU": 4}`` of `init` are the chips 0 to 3, or those that the variable lists where the program
was started.
"""

from __future__ import annotations

from collections.abc import Sequence

from mray._common import settings
from mray._common.record import Record
from mray._common.settings import Setting

#: A number of the machine, or a uuid.
GpuId = int | str


class Kind(Record):
    #: Lists the ids that libraries see.
    variable: str
    #: Whether mray does not set that variable.
    left_alone: Setting[bool]
    #: The format of an id in `variable`.
    form: str = "{}"
    #: Whether several tasks may share a device.
    shared: bool = False


KINDS: dict[str, Kind] = {
    "TPU": Kind("TPU_VISIBLE_CHIPS", settings.NOSET_TPU_VISIBLE_CHIPS),
    "NPU": Kind("ASCEND_RT_VISIBLE_DEVICES", settings.NOSET_ASCEND_RT_VISIBLE_DEVICES, shared=True),
    "HPU": Kind("HABANA_VISIBLE_MODULES", settings.NOSET_HABANA_VISIBLE_MODULES),
    "neuron_cores": Kind("NEURON_RT_VISIBLE_CORES", settings.NOSET_NEURON_RT_VISIBLE_CORES),
    "RBLN": Kind("RBLN_DEVICES", settings.NOSET_RBLN_RT_VISIBLE_DEVICES),
    "FURIOSA": Kind("FURIOSA_DEVICES", settings.NOSET_FURIOSA_DEVICES, form="npu:{}"),
    "MBLT": Kind("QBRUNTIME_VISIBLE_DEVICES", settings.NOSET_MBLT_RT_VISIBLE_DEVICES),
    "TTNPU": Kind("TT_VISIBLE_DEVICES", settings.NOSET_TENSTORRENT_VISIBLE_DEVICES),
}
#: Allowed numbers of TPU chips of a process; the shape to declare to libraries for a part of the machine's chips.
_TPU_CHIPS = (1, 2, 4, 8)
_TPU_BOUNDS = {1: "1,1,1", 2: "1,2,1"}


def wrong_with_quantity(name: str, quantity: float) -> str | None:
    """The error of a demand for this quantity, or None; any resource name."""
    kind = KINDS.get(name)
    if kind is None or not quantity:
        return None
    if name == "TPU":
        if quantity not in _TPU_CHIPS:
            return (
                f"The number of requested 'TPU' was set to {quantity} which is not a supported chip configuration. Supported configs: "
                f"{_TPU_CHIPS}"
            )
        return None
    if quantity == int(quantity) or (kind.shared and quantity < 1):
        return None
    if kind.shared:
        return f"{name} resource quantities >1 must be whole numbers. The specified quantity {quantity} is invalid."
    return f"{name} resource quantity must be whole numbers. The specified quantity {quantity} is invalid."


def visible(indices: Sequence[int], variable: str | None) -> list[str]:
    """The ids of these devices of the session; `variable` is its value when the program was started."""
    listed = None if variable is None else [each.strip().removeprefix("npu:") for each in variable.split(",") if each.strip()]
    if listed is None or variable == "NoDevFiles":
        return [str(index) for index in indices]
    return [listed[index] for index in indices] if all(index < len(listed) for index in indices) else listed


def named_gpus(places: Sequence[int], variable: str) -> list[int | str]:
    """The GPUs of a task whose runtime environment sets `variable`, given the session indices of the GPUs that it holds.

    As on Ray, the indices count in the list; a list that is too short is shown whole.
    """
    listed: list[int | str] = []
    for word in map(str.strip, variable.split(",")):
        if word in ("", "-1", "NoDevFiles"):  # CUDA stops reading there
            break
        listed.append(int(word) if word.isdigit() else word)
    return [listed[place] for place in places] if all(place < len(listed) for place in places) else listed


def variables_of(name: str, ids: Sequence[str]) -> dict[str, str]:
    """The variables that show only these devices to libraries."""
    kind = KINDS[name]
    if kind.left_alone.get():
        return {}
    variables = {kind.variable: ",".join(kind.form.format(each) for each in ids)}
    if name == "TPU" and len(ids) in _TPU_BOUNDS:
        variables.update(TPU_CHIPS_PER_HOST_BOUNDS=_TPU_BOUNDS[len(ids)], TPU_HOST_BOUNDS="1,1,1")
    return variables
