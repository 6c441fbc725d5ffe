"""Record batches from columns: re-exports `log`'s encoder for packages that write no log."""

from seglog.log.column_batches import MAX_BATCH_BYTES_DEFAULT, SelectedRows, encode_spans

__all__ = ["MAX_BATCH_BYTES_DEFAULT", "SelectedRows", "encode_spans"]
