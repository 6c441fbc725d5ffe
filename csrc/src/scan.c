#define _GNU_SOURCE /* d_type constants under -std=c11 */

#include "seglog/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "room.h"
#include "seglog/file.h"

/* ---- names ---------------------------------------------------------------------------------- */

enum { NUMBER_DIGITS = 20, EPOCH_DIGITS = 10 };

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool has_suffix(const char *name, size_t size, const char *suffix) {
    const size_t suffix_size = strlen(suffix);
    return size >= suffix_size && memcmp(name + size - suffix_size, suffix, suffix_size) == 0;
}

/* As Java's Long.parseLong reads ASCII: one optional sign, digits, no overflow. */
static bool parse_number(const char *text, size_t size, int64_t *number) {
    uint64_t value = 0;
    size_t at = 0;
    const bool negative = size > 0 && text[0] == '-';
    const uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    if (size > 0 && (text[0] == '-' || text[0] == '+')) {
        at = 1;
    }
    if (at == size) {
        return false;
    }
    for (; at < size; at++) {
        const uint64_t digit = (uint64_t)(text[at] - '0');
        if (!is_digit(text[at]) || value > (limit - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *number = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

/* `<20 digits>-<10 digits>.checkpoint`, also with `-<random>`, `.part` or `.deleted` after it. */
static bool is_raft_checkpoint(const char *name) {
    int at = 0;
    for (; at < NUMBER_DIGITS; at++) {
        if (!is_digit(name[at])) {
            return false;
        }
    }
    if (name[at++] != '-') {
        return false;
    }
    for (; at < NUMBER_DIGITS + 1 + EPOCH_DIGITS; at++) {
        if (!is_digit(name[at])) {
            return false;
        }
    }
    const char *dot = strchr(name + at, '.');
    return dot != NULL &&
           (strcmp(dot, ".checkpoint") == 0 || strcmp(dot, ".checkpoint.part") == 0 ||
            strcmp(dot, ".checkpoint.deleted") == 0);
}

static slg_file_class classify_text(const char *name) {
    if (strcmp(name, "leader-epoch-checkpoint") == 0) {
        return SLG_FILE_LEADER_EPOCHS;
    }
    if (strcmp(name, "partition.metadata") == 0) {
        return SLG_FILE_PARTITION_METADATA;
    }
    if (strcmp(name, "quorum-state") == 0) {
        return SLG_FILE_QUORUM_STATE;
    }
    if (strcmp(name, "leader-epoch-checkpoint.tmp") == 0 ||
        strcmp(name, "partition.metadata.tmp") == 0 || strcmp(name, "quorum-state.tmp") == 0) {
        return SLG_FILE_TEXT_TEMPORARY;
    }
    return is_raft_checkpoint(name) ? SLG_FILE_RAFT_CHECKPOINT : SLG_FILE_FOREIGN;
}

/* The five suffixes, in the order of their classes. */
static const char *const SUFFIXES[] = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"};
enum { SUFFIX_COUNT = 5 };

/* The class of `<20 digits><suffix>`, or SLG_FILE_FOREIGN. The common case, so it comes first. */
static slg_file_class classify_canonical(const char *name, int64_t *number) {
    uint64_t value = 0;
    for (int at = 0; at < NUMBER_DIGITS; at++) {
        const uint64_t digit = (uint64_t)(name[at] - '0');
        if (!is_digit(name[at]) || value > ((uint64_t)INT64_MAX - digit) / 10) {
            return SLG_FILE_FOREIGN;
        }
        value = value * 10 + digit;
    }
    for (int i = 0; i < SUFFIX_COUNT; i++) {
        if (strcmp(name + NUMBER_DIGITS, SUFFIXES[i]) == 0) {
            *number = (int64_t)value;
            return (slg_file_class)i;
        }
    }
    return SLG_FILE_FOREIGN;
}

slg_file_class slg_classify_name(const char *name, int64_t *number) {
    const size_t size = strlen(name);
    const char *dot = strchr(name, '.');
    const slg_file_class canonical = classify_canonical(name, number);
    slg_file_class numbered = SLG_FILE_OTHER_NUMBER;
    bool known = false;
    if (canonical != SLG_FILE_FOREIGN) {
        return canonical;
    }
    if (has_suffix(name, size, ".deleted") && !has_suffix(name, size, ".checkpoint.deleted")) {
        return SLG_FILE_DELETED;
    }
    if (has_suffix(name, size, ".cleaned")) {
        numbered = SLG_FILE_CLEANED;
        known = true;
    } else if (has_suffix(name, size, ".swap")) {
        numbered = SLG_FILE_SWAP;
        known = true;
    }
    for (int i = 0; i < SUFFIX_COUNT && !known; i++) {
        known = has_suffix(name, size, SUFFIXES[i]);
    }
    if (!known) {
        return classify_text(name);
    }
    /* Kafka takes the text before the first dot for the number, whatever follows. */
    return parse_number(name, (size_t)(dot - name), number) ? numbered : SLG_FILE_NOT_A_NUMBER;
}

/* ---- listing -------------------------------------------------------------------------------- */

static bool add_numbered(slg_listing *listing, int64_t number, uint32_t has) {
    if (listing->numbered_count > 0 &&
        listing->numbered[listing->numbered_count - 1].number == number) {
        listing->numbered[listing->numbered_count - 1].has |= has;
        return true;
    }
    if (SLG_MAKE_ROOM(listing->numbered, listing->numbered_capacity, listing->numbered_count, 1,
                      NULL) != SLG_OK) {
        return false;
    }
    listing->numbered[listing->numbered_count++] = (slg_numbered){.number = number, .has = has};
    return true;
}

static bool add_other(slg_listing *listing, const char *name, slg_file_class class) {
    const size_t size = strlen(name) + 1;
    if (SLG_MAKE_ROOM(listing->names, listing->names_capacity, listing->names_size, size, NULL) !=
            SLG_OK ||
        SLG_MAKE_ROOM(listing->classes, listing->other_capacity, listing->other_count, 1, NULL) !=
            SLG_OK) {
        return false;
    }
    memcpy(listing->names + listing->names_size, name, size);
    listing->names_size += size;
    listing->classes[listing->other_count++] = (uint8_t)class;
    return true;
}

/* SLG_FILE_FOREIGN for a regular file; false if the entry has vanished. */
static bool kind_of(int dir, const struct dirent *entry, slg_file_class *kind) {
    struct stat st;
    switch (entry->d_type) {
    case DT_REG: *kind = SLG_FILE_FOREIGN; return true;
    case DT_DIR: *kind = SLG_FILE_DIRECTORY; return true;
    case DT_LNK: *kind = SLG_FILE_LINK; return true;
    case DT_UNKNOWN: break;
    default: *kind = SLG_FILE_SPECIAL; return true;
    }
    if (fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        /* It exists: the checks will report what is wrong with it. */
        *kind = SLG_FILE_FOREIGN;
        return errno != ENOENT;
    }
    *kind = S_ISREG(st.st_mode)   ? SLG_FILE_FOREIGN
            : S_ISDIR(st.st_mode) ? SLG_FILE_DIRECTORY
            : S_ISLNK(st.st_mode) ? SLG_FILE_LINK
                                  : SLG_FILE_SPECIAL;
    return true;
}

static bool add_entry(slg_listing *listing, int dir, const struct dirent *entry) {
    const char *name = entry->d_name;
    slg_file_class class;
    int64_t number = 0;
    if (name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'))) {
        return true;
    }
    if (!kind_of(dir, entry, &class)) {
        return true;
    }
    if (class == SLG_FILE_FOREIGN) {
        class = slg_classify_name(name, &number);
    }
    if (class <= SLG_FILE_SNAPSHOT) {
        return add_numbered(listing, number, UINT32_C(1) << class);
    }
    return add_other(listing, name, class);
}

/*
 * Directory order is hash order, and a million segments have four million names, so this is a radix
 * sort: at most eight passes, one per byte. A pass is skipped if all bytes are equal, as most are
 * with real offsets. Numbers of names are not negative.
 */
static bool sort_numbered(slg_listing *listing) {
    const size_t count = listing->numbered_count;
    slg_numbered *from = listing->numbered;
    slg_numbered *spare = malloc(count * sizeof *spare);
    slg_numbered *to = spare;
    if (spare == NULL) {
        return false;
    }
    for (unsigned shift = 0; shift < 64; shift += 8) {
        size_t starts[257] = {0};
        for (size_t i = 0; i < count; i++) {
            starts[(((uint64_t)from[i].number >> shift) & 0xff) + 1]++;
        }
        if (starts[(((uint64_t)from[0].number >> shift) & 0xff) + 1] == count) {
            continue;
        }
        for (size_t byte = 1; byte < 257; byte++) {
            starts[byte] += starts[byte - 1];
        }
        for (size_t i = 0; i < count; i++) {
            to[starts[((uint64_t)from[i].number >> shift) & 0xff]++] = from[i];
        }
        slg_numbered *const swapped = from;
        from = to;
        to = swapped;
    }
    if (from == spare) {
        memcpy(listing->numbered, spare, count * sizeof *spare);
    }
    free(spare);
    return true;
}

static void merge_numbered(slg_listing *listing) {
    size_t kept = 0;
    for (size_t i = 1; i < listing->numbered_count; i++) {
        if (listing->numbered[i].number == listing->numbered[kept].number) {
            listing->numbered[kept].has |= listing->numbered[i].has;
        } else {
            listing->numbered[++kept] = listing->numbered[i];
        }
    }
    listing->numbered_count = kept + 1;
}

slg_status slg_list_partition(int dir_fd, const char *path, slg_listing *listing,
                              slg_error *error) {
    int fd;
    slg_status status = slg_open_directory(dir_fd, path, true, &fd, error);
    if (status != SLG_OK) {
        return status;
    }
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        status = slg_fail_errno(error, SLG_IO, 0, errno);
        close(fd);
        return status;
    }
    for (size_t files = 0;; files++) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            if (errno != 0) {
                status = slg_fail_errno(error, SLG_IO, 0, errno);
            }
            break;
        }
        if (!add_entry(listing, fd, entry)) {
            status = slg_fail(error, SLG_NO_MEMORY, 0, 0, 0);
            break;
        }
        if (listing->files_max > 0 && files > listing->files_max) {
            status = slg_fail(error, SLG_LIMIT, 0, (int64_t)listing->files_max, (int64_t)files);
            break;
        }
    }
    closedir(dir);
    if (status == SLG_OK && listing->numbered_count > 1) {
        if (!sort_numbered(listing)) {
            return slg_fail(error, SLG_NO_MEMORY, 0, 0, 0);
        }
        merge_numbered(listing);
    }
    return status;
}

void slg_listing_free(slg_listing *listing) {
    free(listing->numbered);
    free(listing->names);
    free(listing->classes);
    *listing = (slg_listing){0};
}
