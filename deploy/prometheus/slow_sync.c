/* A disk that takes its time: preloaded into a server, it makes each of its syncs last while the file that SLOW_SYNC
   names is there. For live_trouble_test.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int slowly(const char *name, int file) {
    const char *sign = getenv("SLOW_SYNC");
    if (sign && access(sign, F_OK) == 0) {
        /* Longer than the alerts on syncs and on submissions bear with. */
        struct timespec delay = {.tv_sec = 1, .tv_nsec = 500 * 1000 * 1000};
        nanosleep(&delay, 0);
    }
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return sync(file);
}

int fsync(int file) { return slowly("fsync", file); }

int fdatasync(int file) { return slowly("fdatasync", file); }
