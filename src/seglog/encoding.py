"""Record batches from columns, for rooms that know no writable log: what `log` has of it."""

from seglog.log.column_batches import MAX_BATCH_BYTES_DEFAULT, SelectedRows, encode_spans

__all__ = ["MAX_BATCH_BYTES_DEFAULT", "SelectedRows", "encode_spans"]
