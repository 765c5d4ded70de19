/* Overflows the stack of the thread that sends bytes with a word in them, which the environment names. Loaded by
 * LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

static int deeper(int depth) {
  volatile char room[4096];
  room[0] = (char)depth;
  return deeper(depth + 1) + room[0];
}

static void look(const void *bytes, size_t count) {
  const char *word = getenv("OVERFLOW_AT");
  if (word && memmem(bytes, count, word, strlen(word))) deeper(0);
}

ssize_t send(int file, const void *bytes, size_t count, int flags) {
  static ssize_t (*real)(int, const void *, size_t, int);
  if (!real) real = (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
  look(bytes, count);
  return real(file, bytes, count, flags);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
  static ssize_t (*real)(int, const struct iovec *, int);
  if (!real) real = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
  for (int part = 0; part < count; part++) look(parts[part].iov_base, parts[part].iov_len);
  return real(file, parts, count);
}
