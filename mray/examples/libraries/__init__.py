"""Programs that use Ray's own libraries: ``mray run --libraries -m mray.examples.libraries.data``.

They say ``import ray`` and nothing of mray, and run on Ray as they are.
"""
