/* Makes a process's disk slow: each write at a place of a file and each sync of one waits before it is done, for as many
 * milliseconds as a file says that the environment names. Loaded by LD_PRELOAD. Where nothing is said nothing waits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static void wait_first(void) {
  int kept = errno;
  const char *path = getenv("SLOW_DISK_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file >= 0) {
    char text[16] = {0};
    long ms = read(file, text, sizeof text - 1) > 0 ? strtol(text, NULL, 10) : 0;
    close(file);
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (ms > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
  }
  errno = kept;
}

#define SLOW(result, name, parameters, arguments)           \
  result name parameters {                                  \
    static result(*real) parameters;                        \
    if (!real) real = (result(*) parameters)dlsym(RTLD_NEXT, #name); \
    wait_first();                                           \
    return real arguments;                                  \
  }

SLOW(int, fsync, (int file), (file))
SLOW(int, fdatasync, (int file), (file))
SLOW(ssize_t, pwrite, (int file, const void *bytes, size_t count, off_t at), (file, bytes, count, at))
SLOW(ssize_t, pwrite64, (int file, const void *bytes, size_t count, off64_t at), (file, bytes, count, at))
SLOW(ssize_t, pwritev, (int file, const struct iovec *parts, int count, off_t at), (file, parts, count, at))
SLOW(ssize_t, pwritev64, (int file, const struct iovec *parts, int count, off64_t at), (file, parts, count, at))
