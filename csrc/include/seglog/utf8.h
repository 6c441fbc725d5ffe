/*
 * UTF-8 as Java decodes it. Header keys on disk may be any bytes; a consumer sees
 * `new String(bytes, UTF_8)`, which replaces each malformed sequence with one U+FFFD. Java's
 * sequence is the maximal subpart of Unicode 3.9, except that an encoded surrogate (ED A0..BF xx)
 * counts as one, not as three.
 */
#ifndef SEGLOG_UTF8_H
#define SEGLOG_UTF8_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The largest result of `size` bytes: a single bad byte becomes the three of U+FFFD. */
static inline size_t slg_utf8_bound(size_t size) { return size * 3; }

/* Writes valid UTF-8 to `into` (slg_utf8_bound(size) bytes, no overlap) and returns its size. */
size_t slg_utf8_replace(const uint8_t *data, size_t size, uint8_t *into);

#ifdef __cplusplus
}
#endif
#endif
