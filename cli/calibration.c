/* calibration.c: paths of calibrations. A relative XDG_CACHE_HOME does not count, as its specification says.
 */
#include "calibration.h"

#include "base/memory.h"
#include "cli.h"
#include "console.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char *join(const char *folder, const char *below, const char *fingerprint) {
    size_t n = strlen(folder) + strlen(below) + strlen(fingerprint) + sizeof ".centre";
    char *path = kv_alloc(n, 1);
    if (path) snprintf(path, n, "%s%s%s.centre", folder, below, fingerprint);
    return path;
}

char *cli_calibration_path(const char *fingerprint) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache == '/') return join(cache, "/kvant/", fingerprint);
    return home && *home == '/' ? join(home, "/.cache/kvant/", fingerprint) : NULL;
}

int cli_calibration_make_folders(const char *path) {
    char *folder = kv_strdup(path);
    if (!folder) return cli_failed(KVANT_NO_MEMORY);
    int status = CLI_DONE;
    for (char *slash = strchr(folder + 1, '/'); slash && !status; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(folder, 0777) && errno != EEXIST) status = cli_fault("%s: %s", folder, strerror(errno));
        *slash = '/';
    }
    kv_free(folder);
    return status;
}
