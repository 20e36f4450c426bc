"""The words that every layer shares: ids, settings, options, messages, the logger.

Pure: nothing here opens, starts or waits for anything, and nothing here imports another part of mray but its exceptions.
"""
