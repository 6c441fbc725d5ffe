"""Paths for C, for the stems that pass some."""

cdef bytes encoded(path)
