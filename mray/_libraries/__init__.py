"""The package ``ray``, made of mray: for programs that say ``import ray``.

In every process that `mray.as_ray` was imported in: the driver of ``mray run`` and its workers, a notebook, a test run.

::

    import ray.util.queue ──▶ finder ──▶ names.MODULES["ray.util.queue"] ──▶ Facade "ray.util.queue", filled from mray.util.queue
                                              │
                                              ├─ ours      a module of mray that has the names
                                              ├─ also      names that are elsewhere in mray
                                              ├─ absent    names that mray does not have: they can be imported, and raise when used
                                              └─ Lack      modules that mray does not have: importing them raises, with the reason

    with `mray.libraries`, before all that:
    import ray.data ──▶ finder ──▶ library_names ──┬─ CORE     the compiled part of Ray's core, by mray: `core`
                                                   └─ is_rays  Ray's own file, of the installed package: `installed`

A facade is a module of its own, by Ray's name, and its values are mray's: a class has one identity however it was imported, pickles name
mray, and what a program sets in ``ray`` is set only there.

Rejected: second names in ``sys.modules`` for the modules of mray: ``ray.__name__`` is ``mray`` then, a lazy loader refuses a module that
is replaced while it is loaded, and the import system sets a submodule over the function of the same name. A package called ``ray`` on a
path: it might shadow an installed Ray or be shadowed by it.
"""
