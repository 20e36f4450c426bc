"""How the processes of a session are started, watched and reaped.

::

    driver: template ──▶ node: supervisor ──▶ zygote ──fork──▶ workers
                                        └──▶ interpreters, wrapped: workers that cannot be forked
"""
