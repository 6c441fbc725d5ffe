/*
 * main() for compilers without libFuzzer: every seed once, then mutated seeds until the time is up.
 * Not guided by coverage, but it starts from real data, and the same number gives the same inputs.
 *
 *     driver SECONDS RANDOM_SEED CRASH_FILE CORPUS_DIRECTORY
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <sanitizer/common_interface_defs.h>
#include <time.h>

#include "fuzz.h"

enum { SEEDS_MAX = 4096, SIZE_MAX_INPUT = 1 << 16 };

typedef struct seed {
    uint8_t *data;
    size_t size;
} seed;

static seed seeds[SEEDS_MAX];
static size_t seed_count;
static uint8_t current[SIZE_MAX_INPUT];
static size_t current_size;
static const char *crash_file;
static uint64_t random_state;

static uint64_t random_next(void) {
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t random_below(size_t limit) { return limit == 0 ? 0 : random_next() % limit; }

static void save_current(void) {
    FILE *file = fopen(crash_file, "wb");
    if (file != NULL) {
        (void)fwrite(current, 1, current_size, file);
        (void)fclose(file);
    }
}

static void read_seeds(const char *directory) {
    char path[4096];
    DIR *listing = opendir(directory);
    REQUIRE(listing != NULL);
    for (struct dirent *entry; (entry = readdir(listing)) != NULL && seed_count < SEEDS_MAX;) {
        (void)snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (file != NULL) {
            const size_t size = fread(current, 1, sizeof current, file);
            seeds[seed_count++] = (seed){fuzz_exact(current, size), size};
            (void)fclose(file);
        }
    }
    (void)closedir(listing);
}

/* Numbers that lie: what a length, a count or an offset must survive. */
static uint64_t hostile_number(void) {
    static const uint64_t numbers[] = {0,
                                       1,
                                       0x7f,
                                       0x80,
                                       0xff,
                                       0x7fff,
                                       0x8000,
                                       0xffff,
                                       0x7fffffff,
                                       0x80000000U,
                                       0xffffffffU,
                                       UINT64_C(0x7fffffffffffffff),
                                       UINT64_C(0x8000000000000000),
                                       UINT64_MAX};
    return numbers[random_below(sizeof numbers / sizeof numbers[0])] + random_below(3) - 1;
}

static void insert_number(size_t at) {
    const size_t width = (size_t)1 << random_below(4);
    const uint64_t number = hostile_number();
    for (size_t i = 0; i < width && at + i < current_size; i++) {
        current[at + i] = (uint8_t)(number >> (8 * (width - 1 - i)));
    }
}

static void mutate_once(void) {
    const size_t at = random_below(current_size);
    const size_t left = current_size - at;
    const size_t length = 1 + random_below(left < 64 ? left : 64);
    if (current_size == 0) {
        current[current_size++] = (uint8_t)random_next();
        return;
    }
    switch (random_below(7)) {
    case 0: current[at] ^= (uint8_t)(1U << random_below(8)); break;
    case 1: current[at] = (uint8_t)random_next(); break;
    case 2: insert_number(at); break;
    case 3: current_size = at; break;
    case 4:
        memmove(current + at, current + at + (length < left ? length : left),
                left - (length < left ? length : left));
        current_size -= length < left ? length : left;
        break;
    case 5:
        if (current_size + length <= sizeof current && length <= left) {
            memmove(current + at + length, current + at, left);
            current_size += length;
        }
        break;
    default: {
        const seed *other = &seeds[random_below(seed_count)];
        const size_t from = random_below(other->size);
        const size_t take = other->size - from < left ? other->size - from : left;
        if (take > 0) {
            memcpy(current + at, other->data + from, random_below(take) + 1);
        }
    }
    }
}

static void run_current(void) {
    uint8_t *exact = fuzz_exact(current, current_size);
    (void)LLVMFuzzerTestOneInput(exact, current_size);
    free(exact);
}

static void load(const seed *chosen) {
    current_size = chosen->size;
    if (chosen->size > 0) {
        memcpy(current, chosen->data, chosen->size);
    }
}

static double now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int count, char **arguments) {
    REQUIRE(count == 5);
    const double end = now() + atof(arguments[1]);
    uint64_t runs = 0;
    random_state = strtoull(arguments[2], NULL, 10);
    crash_file = arguments[3];
    __sanitizer_set_death_callback(save_current);
    read_seeds(arguments[4]);
    REQUIRE(seed_count > 0);
    for (size_t i = 0; i < seed_count; i++, runs++) {
        load(&seeds[i]);
        run_current();
    }
    for (; now() < end; runs++) {
        load(&seeds[random_below(seed_count)]);
        for (size_t n = random_below(6) + 1; n > 0; n--) {
            mutate_once();
        }
        run_current();
    }
    for (size_t i = 0; i < seed_count; i++) {
        free(seeds[i].data);
    }
    printf("%llu runs from %zu seeds\n", (unsigned long long)runs, seed_count);
    return 0;
}
