"""Programs that use Ray's own libraries: ``mray run --libraries -m mray.examples.libraries.data``.

They import only ``ray``, and run on Ray unchanged.
"""
