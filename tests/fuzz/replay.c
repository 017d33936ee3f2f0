/* replay.c: the main() of a fuzz target in an ordinary build. It feeds the target every file of the folders
 * given, so that an input that once failed is tried again by every test run, with any compiler. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SKIPPED = 77 };

static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat info;
    uint8_t *data = NULL;
    int failed = 1;
    if (!file || fstat(fileno(file), &info)) goto done;
    size_t size = (size_t)info.st_size;
    data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, file) != size) goto done;
    LLVMFuzzerTestOneInput(data, size);
    failed = 0;
done:
    if (failed) fprintf(stderr, "%s: cannot read\n", path);
    if (file) fclose(file);
    free(data);
    return failed;
}

static int replay_folder(DIR *folder, const char *path, int *n_files) {
    int failed = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char name[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        failed |= replay_file(name);
        ++*n_files;
    }
    return failed;
}

int main(int argc, char **argv) {
    int failed = 0, n_files = 0;
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (!folder) {
            fprintf(stderr, "%s: no such folder\n", argv[i]);
            continue;
        }
        failed |= replay_folder(folder, argv[i], &n_files);
        closedir(folder);
    }
    printf("%d inputs\n", n_files);
    if (n_files == 0) return SKIPPED;
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
