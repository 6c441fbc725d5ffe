#include "seglog/utf8.h"

#include <stdbool.h>
#include <string.h>

/* Bytes of the sequence at `p`, and whether it encodes a character. */
typedef struct sequence {
    size_t size;
    bool valid;
} sequence;

static bool continues(const uint8_t *p, const uint8_t *end) {
    return p < end && (*p & 0xc0U) == 0x80U;
}

static sequence three(const uint8_t *p, const uint8_t *end) {
    if (!continues(p + 1, end) || (p[0] == 0xe0U && p[1] < 0xa0U)) {
        return (sequence){1, false};
    }
    if (!continues(p + 2, end)) {
        return (sequence){2, false};
    }
    return (sequence){3, !(p[0] == 0xedU && p[1] >= 0xa0U)};
}

static sequence four(const uint8_t *p, const uint8_t *end) {
    if (!continues(p + 1, end) || (p[0] == 0xf0U && p[1] < 0x90U) ||
        (p[0] == 0xf4U && p[1] > 0x8fU)) {
        return (sequence){1, false};
    }
    if (!continues(p + 2, end)) {
        return (sequence){2, false};
    }
    if (!continues(p + 3, end)) {
        return (sequence){3, false};
    }
    return (sequence){4, true};
}

static sequence next(const uint8_t *p, const uint8_t *end) {
    if (p[0] < 0x80U) {
        return (sequence){1, true};
    }
    if (p[0] >= 0xc2U && p[0] <= 0xdfU) {
        return continues(p + 1, end) ? (sequence){2, true} : (sequence){1, false};
    }
    if (p[0] >= 0xe0U && p[0] <= 0xefU) {
        return three(p, end);
    }
    if (p[0] >= 0xf0U && p[0] <= 0xf4U) {
        return four(p, end);
    }
    return (sequence){1, false};
}

size_t slg_utf8_replace(const uint8_t *data, size_t size, uint8_t *into) {
    const uint8_t *const end = data + size;
    uint8_t *out = into;
    while (data < end) {
        uint64_t word;
        /* Header keys are nearly always ASCII: eight bytes at a time. */
        if (end - data >= 8) {
            memcpy(&word, data, 8);
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                memcpy(out, &word, 8);
                data += 8;
                out += 8;
                continue;
            }
        }
        const sequence found = next(data, end);
        if (found.valid) {
            memcpy(out, data, found.size);
            out += found.size;
        } else {
            static const uint8_t replacement[3] = {0xef, 0xbf, 0xbd};
            memcpy(out, replacement, 3);
            out += 3;
        }
        data += found.size;
    }
    return (size_t)(out - into);
}
