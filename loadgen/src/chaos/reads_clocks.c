/* For each line that it is given: how many hours each way to the wall clock, and the clock that only goes forward, are
 * from what the system itself says. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long hours_from(clockid_t clock, time_t said) {
  struct timespec real;
  syscall(SYS_clock_gettime, clock, &real);
  long seconds = said - real.tv_sec;
  return (seconds + (seconds < 0 ? -1800 : 1800)) / 3600;
}

int main(void) {
  while (getchar() != EOF) {
    struct timespec wall, coarse, standard, forward;
    struct timeval old;
    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_REALTIME_COARSE, &coarse);
    timespec_get(&standard, TIME_UTC);
    gettimeofday(&old, NULL);
    clock_gettime(CLOCK_MONOTONIC, &forward);
    time_t said[] = {wall.tv_sec, coarse.tv_sec, standard.tv_sec, old.tv_sec, time(NULL)};
    for (unsigned place = 0; place < sizeof said / sizeof *said; place++)
      printf("%ld ", hours_from(CLOCK_REALTIME, said[place]));
    printf("%ld\n", hours_from(CLOCK_MONOTONIC, forward.tv_sec));
    fflush(stdout);
  }
}
