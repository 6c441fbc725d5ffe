/* A partition that is plain, and the same with any of its bytes wrong. */
#define _XOPEN_SOURCE 700

#include "seglog/clean_load.h"

#include <limits.h>
#include <sys/stat.h>

#include "build.h"

#define BASE "00000000000000000000"

static char root[PATH_MAX];

typedef struct file {
    const char *name;
    bytes content;
} file;

static file files[6];

static void write_file(const file *f) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/t-0/%s", root, f->name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    CHECK(write(fd, f->content.data, f->content.size) == (ssize_t)f->content.size);
    close(fd);
}

static void add_text(bytes *b, const char *text) { add(b, text, strlen(text)); }

static void make_partition(void) {
    char path[PATH_MAX + 8];
    CHECK(getcwd(root, sizeof root) != NULL);
    snprintf(path, sizeof path, "%s/t-0", root);
    CHECK(mkdir(path, 0755) == 0);
    files[0].name = BASE ".log";
    add_hex(&files[0].content, GOLDEN_ONE);
    files[1].name = BASE ".index";
    add_i32(&files[1].content, 0);
    add_i32(&files[1].content, 0);
    files[2].name = BASE ".timeindex";
    add_i64(&files[2].content, 1000);
    add_i32(&files[2].content, 0);
    files[3].name = "leader-epoch-checkpoint";
    add_text(&files[3].content, "0\n1\n0 0\n");
    files[4].name = "partition.metadata";
    add_text(&files[4].content, "version: 0\ntopic_id: Sl08ZXU2QW6uF5hIoSzc8w\n");
    files[5].name = "00000000000000000001.snapshot";
    bytes *snapshot = &files[5].content;
    add_zeros(snapshot, 6);
    add_i32(snapshot, 1);
    add_i64(snapshot, 7);     /* producer id */
    add_zeros(snapshot, 2 + 4 + 8 + 4);
    add_i64(snapshot, 12345); /* last timestamp */
    add_zeros(snapshot, 4);
    add_i64(snapshot, -1);    /* no open transaction */
    snapshot->data[1] = 1;
    slg_store_i32(snapshot->data + 2, (int32_t)slg_crc32c(slg_crc32c_best(), 0, snapshot->data + 6,
                                                          snapshot->size - 6));
    for (size_t n = 0; n < 6; n++) {
        write_file(&files[n]);
    }
}

static bool load(slg_clean_partition *row, slg_clean_table *table) {
    slg_error error;
    *row = (slg_clean_partition){0};
    CHECK_EQ(slg_clean_load(root, "t-0", 1, 0, SLG_CLEAN_WRITABLE, row, table, &error), SLG_OK);
    return row->plain;
}

static void check_row(void) {
    slg_clean_partition row;
    slg_clean_table table = {0};
    CHECK(load(&row, &table));
    CHECK_EQ(row.log_end_offset, 1);
    CHECK_EQ(row.segments, 1);
    CHECK_EQ(row.second_base_offset, -1);
    CHECK_EQ(row.size, (int64_t)files[0].content.size);
    CHECK_EQ(row.producers, 1);
    CHECK_EQ(table.timestamps[row.producers_at], 12345);
    CHECK_EQ(row.stray_snapshot, -1);
    CHECK_EQ(row.topic_id[0], 74);
    slg_clean_table_free(&table);
    int64_t base = 0, timestamp = 0;
    slg_clean_timestamps(root, "t-0", &base, 1, &timestamp);
    CHECK_EQ(timestamp, 1000);
}

/* Each byte changed, and each file cut at each byte: no row says more than the files hold. */
static void check_damage(void) {
    uint64_t state = 1;
    slg_clean_table table = {0};
    for (size_t n = 0; n < 6; n++) {
        const bytes whole = files[n].content;
        for (size_t at = 0; at < whole.size; at++) {
            slg_clean_partition row;
            for (int round = 0; round < 4; round++) {
                files[n].content = whole;
                files[n].content.data[at] ^= (uint8_t)(1 + random_next(&state) % 255);
                write_file(&files[n]);
                if (load(&row, &table)) {
                    CHECK(row.log_end_offset == 1 && row.log_start_offset == 0);
                    CHECK(n != 5 && row.producers == 1);
                }
            }
            files[n].content = whole;
            files[n].content.size = at;
            write_file(&files[n]);
            (void)load(&row, &table);
        }
        files[n].content = whole;
        write_file(&files[n]);
    }
    slg_clean_table_free(&table);
    check_row();
}

int main(int argc, char **argv) {
    CHECK(argc == 1 || chdir(argv[1]) == 0);
    make_partition();
    check_row();
    check_damage();
    return 0;
}
