/* Names of directory entries: any bytes but NUL and '/', which a file system refuses itself. */
#include "fuzz.h"
#include "seglog/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *name = malloc(size + 1);
    REQUIRE(name != NULL);
    for (size_t i = 0; i < size; i++) {
        name[i] = (char)(data[i] == 0 || data[i] == '/' ? 'x' : data[i]);
    }
    name[size] = 0;
    int64_t number = INT64_MIN;
    const slg_file_class class = slg_classify_name(name, &number);
    REQUIRE(class >= SLG_FILE_LOG && class <= SLG_FILE_FOREIGN);
    if (class <= SLG_FILE_SNAPSHOT) {
        char canonical[32];
        (void)snprintf(canonical, sizeof canonical, "%020lld", (long long)number);
        REQUIRE(number >= 0 && strlen(name) > 20 && memcmp(name, canonical, 20) == 0);
    }
    int64_t again = INT64_MIN;
    REQUIRE(slg_classify_name(name, &again) == class && again == number);
    free(name);
    return 0;
}
