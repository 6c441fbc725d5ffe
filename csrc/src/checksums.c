#include "seglog/checksums.h"

#include "encode_internal.h"
#include "seglog/batch.h"
#include "seglog/format.h"

static int64_t is_one_batch(const uint8_t *data, size_t size, slg_crc32c_kernel kernel) {
    const int64_t end = (int64_t)size;
    slg_error error;
    slg_batch batch;
    int32_t whole = 0;
    return slg_batch_frame(data, size, 0, end, &whole, &error) == SLG_OK && whole == end &&
           slg_batch_parse(data, size, 0, whole, &batch, &error) == SLG_OK && batch.magic >= 0 &&
           batch.magic <= SLG_MAGIC_MAX &&
           slg_batch_check_crc(&batch, data, kernel, &error) == SLG_OK;
}

/* The result for one value. */
typedef int64_t number_of(const uint8_t *data, size_t size, slg_crc32c_kernel kernel);

static int64_t crc_of(const uint8_t *data, size_t size, slg_crc32c_kernel kernel) {
    return (int64_t)slg_crc32c(kernel, 0, data, size);
}

slg_status slg_checksum_column(const slg_input_binary *column, int64_t rows, slg_checksum what,
                               slg_crc32c_kernel kernel, int64_t *out, slg_error *error) {
    number_of *const number = what == SLG_CHECKSUM_CRC32C ? crc_of : is_one_batch;
    for (int64_t row = 0; row < rows; row++) {
        slg_value bytes;
        if (!value_at(column, row, &bytes)) {
            return slg_fail(error, SLG_ARROW_LAYOUT, row, 0, row);
        }
        out[row] = bytes.size < 0 ? -1 : number(bytes.data, (size_t)bytes.size, kernel);
    }
    return SLG_OK;
}
