#include "seglog/checksums.h"

#include "encode_internal.h"
#include "seglog/batch.h"

enum { MAGIC_MAX = 2 };

slg_status slg_checksum_column(const slg_input_binary *column, int64_t rows,
                               slg_crc32c_kernel kernel, int64_t *out, slg_error *error) {
    for (int64_t row = 0; row < rows; row++) {
        value bytes;
        if (!value_at(column, row, &bytes)) {
            return slg_fail(error, SLG_ARROW_LAYOUT, row, 0, row);
        }
        out[row] = -1;
        if (bytes.size >= 0) {
            out[row] = (int64_t)slg_crc32c(kernel, 0, bytes.data, (size_t)bytes.size);
        }
    }
    return SLG_OK;
}

static int is_one_batch(const uint8_t *data, size_t size, slg_crc32c_kernel kernel) {
    const int64_t end = (int64_t)size;
    slg_error error;
    slg_batch batch;
    int32_t whole = 0;
    return slg_batch_frame(data, size, 0, end, &whole, &error) == SLG_OK && whole == end
        && slg_batch_parse(data, size, 0, whole, &batch, &error) == SLG_OK && batch.magic >= 0
        && batch.magic <= MAGIC_MAX
        && slg_batch_check_crc(&batch, data, kernel, &error) == SLG_OK;
}

slg_status slg_valid_batch_column(const slg_input_binary *column, int64_t rows,
                                  slg_crc32c_kernel kernel, int8_t *out, slg_error *error) {
    for (int64_t row = 0; row < rows; row++) {
        value bytes;
        if (!value_at(column, row, &bytes)) {
            return slg_fail(error, SLG_ARROW_LAYOUT, row, 0, row);
        }
        out[row] = -1;
        if (bytes.size >= 0) {
            out[row] = (int8_t)is_one_batch(bytes.data, (size_t)bytes.size, kernel);
        }
    }
    return SLG_OK;
}
