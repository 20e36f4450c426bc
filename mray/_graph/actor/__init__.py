"""An actor's part of the graphs that it belongs to: programs, which its main thread runs between ordinary calls.

    Assignment ---> GraphService ---> compile_program ---> Program: READ, COMPUTE, WRITE, until nothing can go on
"""
