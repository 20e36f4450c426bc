"""A compiled graph in the hands of those who call it: the process that compiled it, its event loops, and other processes.

    execute ---> CompiledGraph ---> input ring          other processes: RemoteGraph ---> RemoteCallers ---> CompiledGraph
    get, await <--- Results <------ output rings
"""
