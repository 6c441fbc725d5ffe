/*
 * The floors under bench_load.py and bench_index.py: the system calls that the work cannot do
 * without, in a plain loop. Prints "<segments> <seconds>" for `scan` and `open`.
 *
 *   floor_load scan DIRECTORY        readdir, and fstatat of every log file
 *   floor_load open DIRECTORY N I    open, fstat, pread and close of both indexes of every segment
 *                                    whose number in directory order is I modulo N (one process
 *                                    of N)
 */
#define _GNU_SOURCE

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NUMBER_DIGITS = 20 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int is_log(const char *name) {
    return strlen(name) == NUMBER_DIGITS + 4 && strcmp(name + NUMBER_DIGITS, ".log") == 0;
}

static long stat_log(int dir, const char *name) {
    struct stat st;
    return fstatat(dir, name, &st, 0) == 0 ? (long)st.st_size : 0;
}

static long open_indexes(int dir, const char *name) {
    static char buffer[1 << 16];
    long sum = 0;
    for (int time_index = 0; time_index < 2; time_index++) {
        char path[NUMBER_DIGITS + 16];
        struct stat st;
        memcpy(path, name, NUMBER_DIGITS);
        strcpy(path + NUMBER_DIGITS, time_index ? ".timeindex" : ".index");
        const int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            fstat(fd, &st);
            sum += (long)pread(fd, buffer, sizeof buffer, 0);
            close(fd);
        }
    }
    return sum;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        return 2;
    }
    const int opens = strcmp(argv[1], "open") == 0;
    const long parts = opens && argc > 4 ? atol(argv[3]) : 1;
    const long part = opens && argc > 4 ? atol(argv[4]) : 0;
    const double start = now();
    DIR *dir = opendir(argv[2]);
    const struct dirent *entry;
    long segments = 0, mine = 0, sum = 0;
    if (dir == NULL) {
        return 1;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (is_log(entry->d_name) && segments++ % parts == part) {
            mine++;
            sum += opens ? open_indexes(dirfd(dir), entry->d_name)
                         : stat_log(dirfd(dir), entry->d_name);
        }
    }
    closedir(dir);
    printf("%ld %.9f %ld\n", mine, now() - start, sum);
    return 0;
}
