"""Definitions that every layer shares: ids, settings, options, messages, the logger.

Pure, except for `bridge`, which calls into event loops: nothing else here opens, starts or waits for anything, and nothing here imports
another part of mray except its exceptions.
"""
