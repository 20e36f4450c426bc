"""GPUs, and what else the machine offers, for layers above that know no vendor.

`mray._device.discovery` reads what there is without loading a GPU library, so that the driver may do it before any user code has decided
how to use a device.
"""
