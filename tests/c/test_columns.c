/* The pool of column sets: reuse, the end of a pool, and a fork while another thread uses it. */
#define _XOPEN_SOURCE 700 /* fork, alarm */

#include "seglog/columns.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { WANTED = 1U << SLG_COLUMN_OFFSET };

static void test_sets_are_reused(void) {
    int64_t live = 0;
    slg_pool *pool = slg_pool_new(1, &live);
    CHECK(pool != NULL);
    slg_columns *first = slg_pool_take(pool, WANTED, SLG_LAYOUT_KAFKA);
    slg_columns *second = slg_pool_take(pool, WANTED, SLG_LAYOUT_KAFKA);
    CHECK(first != NULL && second != NULL && first != second);
    CHECK_EQ(live, 2);
    slg_columns_release(first);
    slg_columns_release(second); /* the pool keeps one set: this one is freed */
    CHECK_EQ(live, 0);
    CHECK(slg_pool_take(pool, WANTED, SLG_LAYOUT_KAFKA) == first);
    slg_columns_retain(first);
    slg_pool_close(pool);
    slg_columns_release(first);
    CHECK_EQ(live, 1);
    slg_columns_release(first);
    CHECK_EQ(live, 0);
}

static int stopped = 0;

static void *use_pool(void *context) {
    while (!__atomic_load_n(&stopped, __ATOMIC_RELAXED)) {
        slg_columns_release(slg_pool_take(context, WANTED, SLG_LAYOUT_KAFKA));
    }
    return NULL;
}

/* A child has no other thread, so it must not wait for one that was in the pool. */
static void test_a_fork_waits_for_no_thread(void) {
    pthread_t thread;
    slg_pool *pool = slg_pool_new(3, NULL);
    CHECK(pool != NULL);
    slg_columns *set = slg_pool_take(pool, WANTED, SLG_LAYOUT_KAFKA);
    slg_columns *kept = slg_pool_take(pool, WANTED, SLG_LAYOUT_KAFKA);
    CHECK(set != NULL && kept != NULL);
    slg_columns_release(kept);
    CHECK_EQ(pthread_create(&thread, NULL, use_pool, pool), 0);
    for (int i = 0; i < 200; i++) {
        int status;
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20);
            slg_columns_release(set);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_EQ(status, 0);
    }
    __atomic_store_n(&stopped, 1, __ATOMIC_RELAXED);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    slg_columns_release(set);
    slg_pool_close(pool);
}

int main(void) {
    test_sets_are_reused();
    test_a_fork_waits_for_no_thread();
    return 0;
}
