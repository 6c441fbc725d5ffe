/* A directory with every kind of name, checks of its segments, and files that vanish. */
#define _XOPEN_SOURCE 700 /* symlink, mkfifo, utimensat */

#include "seglog/scan.h"

#include <errno.h>
#include <sys/stat.h>

#include "build.h"

/* ---- names ---------------------------------------------------------------------------------- */

#define FIVE "00000000000000000005"

typedef struct name_case {
    const char *name;
    slg_file_class class;
    int64_t number; /* -7: left alone */
} name_case;

static const name_case NAMES[] = {
    {FIVE ".log", SLG_FILE_LOG, 5},
    {FIVE ".index", SLG_FILE_INDEX, 5},
    {FIVE ".timeindex", SLG_FILE_TIME_INDEX, 5},
    {FIVE ".txnindex", SLG_FILE_TXN_INDEX, 5},
    {FIVE ".snapshot", SLG_FILE_SNAPSHOT, 5},
    {"09223372036854775807.log", SLG_FILE_LOG, INT64_MAX},
    {FIVE ".log.deleted", SLG_FILE_DELETED, -7},
    {FIVE ".snapshot.deleted", SLG_FILE_DELETED, -7},
    {"anything.deleted", SLG_FILE_DELETED, -7},
    {FIVE ".log.cleaned", SLG_FILE_CLEANED, 5},
    {FIVE ".timeindex.swap", SLG_FILE_SWAP, 5},
    {"foo.swap", SLG_FILE_NOT_A_NUMBER, -7},
    {"leader-epoch-checkpoint", SLG_FILE_LEADER_EPOCHS, -7},
    {"partition.metadata", SLG_FILE_PARTITION_METADATA, -7},
    {"quorum-state", SLG_FILE_QUORUM_STATE, -7},
    {"leader-epoch-checkpoint.tmp", SLG_FILE_TEXT_TEMPORARY, -7},
    {"partition.metadata.tmp", SLG_FILE_TEXT_TEMPORARY, -7},
    {FIVE "-0000000001.checkpoint", SLG_FILE_RAFT_CHECKPOINT, -7},
    {FIVE "-0000000001.checkpoint.part", SLG_FILE_RAFT_CHECKPOINT, -7},
    {FIVE "-0000000001.checkpoint.deleted", SLG_FILE_RAFT_CHECKPOINT, -7},
    {FIVE "-0000000001-8877.checkpoint.part", SLG_FILE_RAFT_CHECKPOINT, -7},
    {FIVE "-000000001.checkpoint", SLG_FILE_FOREIGN, -7},
    {FIVE "-0000000001.checkpoints", SLG_FILE_FOREIGN, -7},
    {"5.log", SLG_FILE_OTHER_NUMBER, 5},
    {"-5.log", SLG_FILE_OTHER_NUMBER, -5},
    {"+5.index", SLG_FILE_OTHER_NUMBER, 5},
    {FIVE ".1.log", SLG_FILE_OTHER_NUMBER, 5},
    {"-9223372036854775808.log", SLG_FILE_OTHER_NUMBER, INT64_MIN},
    {"09223372036854775808.log", SLG_FILE_NOT_A_NUMBER, -7},
    {"99999999999999999999.log", SLG_FILE_NOT_A_NUMBER, -7},
    {"-9223372036854775809.log", SLG_FILE_NOT_A_NUMBER, -7},
    {"foo.log", SLG_FILE_NOT_A_NUMBER, -7},
    {".log", SLG_FILE_NOT_A_NUMBER, -7},
    {"-.log", SLG_FILE_NOT_A_NUMBER, -7},
    {"+-5.log", SLG_FILE_NOT_A_NUMBER, -7},
    {"5 .log", SLG_FILE_NOT_A_NUMBER, -7},
    {"log", SLG_FILE_FOREIGN, -7},
    {FIVE, SLG_FILE_FOREIGN, -7},
    {FIVE "-", SLG_FILE_FOREIGN, -7},
    {FIVE ".LOG", SLG_FILE_FOREIGN, -7},
    {"\xff\xfe", SLG_FILE_FOREIGN, -7},
    {"notes.txt", SLG_FILE_FOREIGN, -7},
};
enum { NAME_COUNT = sizeof NAMES / sizeof NAMES[0] };

static slg_file_class classify(const char *name, int64_t *number) {
    char *copy = (char *)exact_copy(name, strlen(name) + 1);
    *number = -7;
    const slg_file_class class = slg_classify_name(copy, number);
    free(copy);
    return class;
}

static void check_names(void) {
    uint64_t state = 11;
    char name[64];
    int64_t number;
    for (size_t i = 0; i < NAME_COUNT; i++) {
        CHECK_EQ(classify(NAMES[i].name, &number), NAMES[i].class);
        CHECK_EQ(number, NAMES[i].number);
    }
    for (int round = 0; round < 20000; round++) { /* cut and changed anywhere */
        strcpy(name, NAMES[random_next(&state) % NAME_COUNT].name);
        name[random_next(&state) % (strlen(name) + 1)] = (char)random_next(&state);
        name[random_next(&state) % 40] = '\0';
        CHECK(classify(name, &number) <= SLG_FILE_FOREIGN);
    }
}

/* ---- a directory ---------------------------------------------------------------------------- */

static void put(const char *name, const void *data, size_t size) {
    const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
}

static void put_number(int64_t number, const char *suffix, const void *data, size_t size) {
    char name[64];
    CHECK(snprintf(name, sizeof name, "%020" PRId64 "%s", number, suffix) > 0);
    put(name, data, size);
}

static void enter_directory(const char *name) { CHECK(mkdir(name, 0700) == 0 && chdir(name) == 0); }

static slg_file_class class_in(const slg_listing *listing, const char *name) {
    const char *at = listing->names;
    for (size_t i = 0; i < listing->other_count; i++, at += strlen(at) + 1) {
        if (strcmp(at, name) == 0) {
            return (slg_file_class)listing->classes[i];
        }
    }
    CHECK(at == NULL); /* the name is not listed */
    return SLG_FILE_FOREIGN;
}

static void check_listing(void) {
    slg_listing listing = {0};
    slg_error error;
    size_t others = 0;
    enter_directory("listing");
    CHECK_EQ(slg_list_partition(AT_FDCWD, ".", &listing, &error), SLG_OK);
    CHECK(listing.numbered_count == 0 && listing.other_count == 0);
    slg_listing_free(&listing);
    for (size_t i = 0; i < NAME_COUNT; i++) {
        put(NAMES[i].name, "", 0);
        others += NAMES[i].class > SLG_FILE_SNAPSHOT;
    }
    CHECK(symlink(FIVE ".log", "00000000000000000006.log") == 0);
    CHECK(mkfifo("00000000000000000007.log", 0600) == 0);
    CHECK(mkdir("00000000000000000008.log", 0700) == 0);
    CHECK_EQ(slg_list_partition(AT_FDCWD, ".", &listing, &error), SLG_OK);
    CHECK_EQ(listing.numbered_count, 2);
    CHECK(listing.numbered[0].number == 5 && listing.numbered[0].has == 31);
    CHECK(listing.numbered[1].number == INT64_MAX && listing.numbered[1].has == SLG_HAS_LOG);
    CHECK_EQ(listing.other_count, others + 3);
    for (size_t i = 0; i < NAME_COUNT; i++) {
        CHECK(NAMES[i].class <= SLG_FILE_SNAPSHOT ||
              class_in(&listing, NAMES[i].name) == NAMES[i].class);
    }
    CHECK_EQ(class_in(&listing, "00000000000000000006.log"), SLG_FILE_LINK);
    CHECK_EQ(class_in(&listing, "00000000000000000007.log"), SLG_FILE_SPECIAL);
    CHECK_EQ(class_in(&listing, "00000000000000000008.log"), SLG_FILE_DIRECTORY);
    slg_listing_free(&listing);
    CHECK_EQ(slg_list_partition(AT_FDCWD, "none", &listing, &error), SLG_IO);
    CHECK_EQ(error.sys_errno, ENOENT);
    CHECK_EQ(slg_list_partition(AT_FDCWD, FIVE ".log", &listing, &error), SLG_IO);
    CHECK_EQ(error.sys_errno, ENOTDIR);
    slg_listing_free(&listing);
    CHECK(chdir("..") == 0);
}

/* Numbers in any order come out sorted, whichever of their bytes differ, and each once. */
static void check_order(void) {
    static const int64_t steps[] = {1, 255, 65537, INT64_C(1) << 40, INT64_C(1) << 54};
    uint64_t state = 5;
    enter_directory("order");
    for (int64_t i = 0; i < 300; i++) {
        const int64_t number = (int64_t)(random_next(&state) % 150) * steps[i % 5];
        put_number(number, ".log", "", 0);
        put_number(number, i % 2 ? ".index" : ".snapshot", "", 0);
    }
    slg_listing listing = {0};
    CHECK_EQ(slg_list_partition(AT_FDCWD, ".", &listing, NULL), SLG_OK);
    CHECK(listing.numbered_count > 100 && listing.other_count == 0);
    for (size_t i = 0; i < listing.numbered_count; i++) {
        CHECK(i == 0 || listing.numbered[i - 1].number < listing.numbered[i].number);
        CHECK((listing.numbered[i].has & SLG_HAS_LOG) != 0);
        CHECK((listing.numbered[i].has & (SLG_HAS_INDEX | SLG_HAS_SNAPSHOT)) != 0);
    }
    slg_listing_free(&listing);
    CHECK(chdir("..") == 0);
}

/* ---- segments ------------------------------------------------------------------------------- */

enum { SEGMENTS = 9 };

static int64_t log_size[SEGMENTS], index_size[SEGMENTS], time_size[SEGMENTS];
static int64_t txn_size[SEGMENTS], mtime[SEGMENTS];
static int32_t statuses[SEGMENTS];
static slg_problem problems[SEGMENTS * SLG_PROBLEMS_PER_SEGMENT];
static size_t problem_count;
static const int64_t NUMBERS[SEGMENTS] = {0, 100, 200, 300, 400, 500, 600, 700, 800};
static uint8_t has[SEGMENTS];

static void run_checks(slg_check_level level) {
    const slg_segment_columns out = {log_size, index_size, time_size, txn_size, mtime, statuses};
    memset(problems, 0xee, sizeof problems);
    CHECK_EQ(slg_check_segments(".", NUMBERS, has, SEGMENTS, 900, level, &out, problems,
                                &problem_count, NULL),
             SLG_OK);
}

static void problem_is(size_t at, int64_t row, slg_file_class file, slg_status status,
                       int64_t position, int64_t expected, int64_t found) {
    CHECK(at < problem_count);
    CHECK_EQ(problems[at].row, row);
    CHECK_EQ(problems[at].file, file);
    CHECK_EQ(problems[at].status, status);
    CHECK_EQ(problems[at].position, position);
    CHECK_EQ(problems[at].expected, expected);
    CHECK_EQ(problems[at].found, found);
    CHECK(problems[at].sys_errno == 0 || status == SLG_FILE_MISSING);
}

static const char SOUND[8] = {0, 0, 0, 1, 0, 0, 0, 72};
static const char TIMES[12] = {0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1};

/* Row 0 is sound, and each of the others has what its line says. */
static void build_segments(void) {
    static bytes txn;
    static const uint8_t zeros[64];
    const struct timespec times[2] = {{1000, 0}, {1234567, 891000000}};
    txn.size = 0;
    add_hex(&txn, "0100 0000000000000001 0000000000000000 000000000000001d 0000000000000008");
    for (int i = 0; i < SEGMENTS; i++) {
        put_number(NUMBERS[i], ".log", zeros, 0);
        put_number(NUMBERS[i], ".index", SOUND, 8);
        put_number(NUMBERS[i], ".timeindex", TIMES, 12);
        has[i] = SLG_HAS_LOG | SLG_HAS_INDEX | SLG_HAS_TIME_INDEX;
        char name[64];
        CHECK(snprintf(name, sizeof name, "%020" PRId64 ".log", NUMBERS[i]) > 0);
        CHECK(truncate(name, 144) == 0);
    }
    CHECK(utimensat(AT_FDCWD, "00000000000000000000.log", times, 0) == 0);
    CHECK(unlink("00000000000000000100.log") == 0);       /* 1: the log vanished */
    CHECK(unlink("00000000000000000200.index") == 0);     /* 2: an index vanished */
    has[3] = SLG_HAS_LOG;                                 /* 3: no index was listed */
    put_number(400, ".index", "\0\0\0\1\0\0\0\x90", 8);   /* 4: beyond the log */
    put_number(400, ".timeindex", TIMES, 11);             /*    and not whole */
    put_number(500, ".txnindex", txn.data, txn.size);     /* 5: a version that Kafka refuses */
    has[5] |= SLG_HAS_TXN_INDEX;
    CHECK(truncate("00000000000000000600.log", INT64_C(0x80000000)) == 0); /* 6: too large */
    put_number(700, ".index", zeros, 64);                 /* 7: never written */
    CHECK(unlink("00000000000000000800.log") == 0);       /* 8: a link */
    CHECK(symlink("00000000000000000000.log", "00000000000000000800.log") == 0);
}

static void check_segments(void) {
    enter_directory("segments");
    build_segments();
    run_checks(SLG_CHECK_KAFKA);
    CHECK_EQ(problem_count, 5);
    problem_is(0, 1, SLG_FILE_LOG, SLG_FILE_MISSING, 0, 0, 0);
    problem_is(1, 3, SLG_FILE_INDEX, SLG_FILE_MISSING, 0, 0, 0);
    problem_is(2, 5, SLG_FILE_TXN_INDEX, SLG_TXN_VERSION, 0, 0, 0x100);
    problem_is(3, 6, SLG_FILE_LOG, SLG_FILE_TOO_LARGE, 0, INT32_MAX, INT64_C(0x80000000));
    problem_is(4, 8, SLG_FILE_LOG, SLG_FILE_KIND, 0, S_IFREG, S_IFLNK);
    CHECK(log_size[0] == 144 && mtime[0] == 1234567891 && statuses[0] == SLG_OK);
    CHECK(index_size[0] == -1 && time_size[0] == -1 && txn_size[0] == -1);
    CHECK(log_size[1] == -1 && mtime[1] == -1 && statuses[1] == SLG_FILE_MISSING);
    CHECK(txn_size[5] == 34 && log_size[8] == -1);

    run_checks(SLG_CHECK_FULL);
    CHECK_EQ(problem_count, 9);
    problem_is(0, 1, SLG_FILE_LOG, SLG_FILE_MISSING, 0, 0, 0);
    problem_is(1, 2, SLG_FILE_INDEX, SLG_FILE_MISSING, 0, 0, 0);
    CHECK_EQ(problems[1].sys_errno, ENOENT);
    problem_is(2, 3, SLG_FILE_INDEX, SLG_FILE_MISSING, 0, 0, 0);
    problem_is(3, 4, SLG_FILE_INDEX, SLG_INDEX_POSITION_RANGE, 4, 144, 144);
    problem_is(4, 4, SLG_FILE_TIME_INDEX, SLG_INDEX_SIZE, 0, 12, 11);
    problem_is(5, 5, SLG_FILE_TXN_INDEX, SLG_TXN_VERSION, 0, 0, 0x100);
    problem_is(6, 6, SLG_FILE_LOG, SLG_FILE_TOO_LARGE, 0, INT32_MAX, INT64_C(0x80000000));
    problem_is(7, 7, SLG_FILE_INDEX, SLG_INDEX_UNWRITTEN, 0, 0, 64);
    problem_is(8, 8, SLG_FILE_LOG, SLG_FILE_KIND, 0, S_IFREG, S_IFLNK);
    CHECK(index_size[0] == 8 && time_size[0] == 12 && txn_size[0] == -1);
    CHECK(statuses[4] == SLG_INDEX_POSITION_RANGE && statuses[0] == SLG_OK);
    CHECK(index_size[2] == -1 && index_size[4] == 8 && time_size[4] == 11);

    slg_error error;
    const slg_segment_columns out = {log_size, index_size, time_size, txn_size, mtime, statuses};
    CHECK_EQ(slg_check_segments("none", NUMBERS, has, SEGMENTS, 900, SLG_CHECK_FULL, &out, problems,
                                &problem_count, &error),
             SLG_IO);
    CHECK(error.sys_errno == ENOENT && problem_count == 0);
    CHECK(chdir("..") == 0);
}

/* Indexes beyond one buffer: entries are fed in pieces, and the last one is still seen. */
static void check_long_index(void) {
    static bytes index;
    static const int32_t entries = 16000; /* 128000 bytes, two buffers */
    const int64_t number = 0;
    const uint8_t all = SLG_HAS_LOG | SLG_HAS_INDEX;
    const slg_segment_columns out = {log_size, index_size, time_size, txn_size, mtime, statuses};
    enter_directory("long");
    index.size = 0;
    for (int32_t n = 1; n <= entries; n++) {
        add_i32(&index, n);
        add_i32(&index, n);
    }
    put_number(0, ".log", index.data, (size_t)entries + 1);
    for (int32_t end = entries; end <= entries + 1; end++) {
        put_number(0, ".index", index.data, index.size);
        CHECK_EQ(slg_check_segments(".", &number, &all, 1, end, SLG_CHECK_FULL, &out, problems,
                                    &problem_count, NULL),
                 SLG_OK);
        CHECK_EQ(index_size[0], 8 * entries);
        CHECK_EQ(problem_count, end == entries ? 1 : 0);
    }
    CHECK_EQ(problems[0].position, 8 * (entries - 1));
    CHECK(chdir("..") == 0);
}

/* A time so late that its milliseconds wrap, as in Java, where the file system keeps it. */
static void check_late_change(void) {
    const struct timespec late[2] = {{1000, 0}, {INT64_C(1) << 60, 7000000}};
    const uint8_t log[1] = {SLG_HAS_LOG};
    struct stat st;
    enter_directory("late");
    put_number(0, ".log", "", 0);
    CHECK(utimensat(AT_FDCWD, "00000000000000000000.log", late, 0) == 0);
    CHECK(stat("00000000000000000000.log", &st) == 0);
    const slg_segment_columns out = {log_size, index_size, time_size, txn_size, mtime, statuses};
    CHECK_EQ(slg_check_segments(".", NUMBERS, log, 1, 900, SLG_CHECK_KAFKA, &out, problems,
                                &problem_count, NULL),
             SLG_OK);
    CHECK_EQ(mtime[0], (uint64_t)st.st_mtim.tv_sec * 1000 + (uint64_t)st.st_mtim.tv_nsec / 1000000);
    CHECK(chdir("..") == 0);
}

/* An empty log, bytes that are no batch beside an index that points into them, and no log. */
static void check_ends(void) {
    const int64_t numbers[3] = {0, 5, 9};
    const uint8_t listed[3] = {SLG_HAS_LOG, SLG_HAS_LOG | SLG_HAS_INDEX,
                               SLG_HAS_LOG | SLG_HAS_INDEX};
    const uint8_t index[16] = {0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0, 0, 40};
    uint8_t garbage[100];
    int64_t sizes[3];
    int64_t ends[3];
    memset(garbage, 1, sizeof garbage);
    enter_directory("ends");
    put_number(0, ".log", "", 0);
    put_number(5, ".log", garbage, sizeof garbage);
    put_number(5, ".index", index, sizeof index);
    CHECK_EQ(slg_segment_ends(".", numbers, listed, 3, sizes, ends, NULL), SLG_OK);
    CHECK_EQ(sizes[0], 0);
    CHECK_EQ(ends[0], 0);
    CHECK_EQ(sizes[1], 100);
    CHECK_EQ(ends[1], 5);
    CHECK_EQ(sizes[2], -1);
    CHECK_EQ(ends[2], -1);
    CHECK(chdir("..") == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 1 || chdir(argv[1]) == 0);
    check_names();
    check_listing();
    check_order();
    check_segments();
    check_long_index();
    check_late_change();
    check_ends();
    return 0;
}
