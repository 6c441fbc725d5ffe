"""Rows of BATCH_DTYPE, as C has them."""

from seglog._native.capi cimport slg_batch

cdef slg_batch *batches_of(object rows) except? NULL
