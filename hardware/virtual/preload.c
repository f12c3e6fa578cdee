// SPDX-License-Identifier: MIT
/*
 * The functions of libc that this library replaces for QEMU. Threads other than the vCPUs and the main loop use the real
 * functions.
 */
#include <dlfcn.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include "virtual.h"

#define MAX_POLLED  255
#define PATIENCE_NS 200000000

static int (*real_cond_wait)(pthread_cond_t *, pthread_mutex_t *);
static int (*real_broadcast)(pthread_cond_t *), (*real_signal)(pthread_cond_t *);
static int64_t epoch_ns; /* CLOCK_REALTIME at virtual time 0 */

__attribute__((constructor)) static void start(void)
{
	/* name the version, because glibc also has older versions of the condition functions for old programs */
	*(void **)&real_cond_wait = dlvsym(RTLD_NEXT, "pthread_cond_wait", "GLIBC_2.3.2");
	*(void **)&real_broadcast = dlvsym(RTLD_NEXT, "pthread_cond_broadcast", "GLIBC_2.3.2");
	*(void **)&real_signal = dlvsym(RTLD_NEXT, "pthread_cond_signal", "GLIBC_2.3.2");
	is_main = true;
	epoch_ns = real_ns(CLOCK_REALTIME);
}

/* ---- clocks ---- */

EXPORT int clock_gettime(clockid_t clock, struct timespec *time)
{
	int64_t now;

	if (!(self || is_main) || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME))
		return (int)syscall(SYS_clock_gettime, clock, time);
	now = now_ns() + (clock == CLOCK_REALTIME ? epoch_ns : 0);
	time->tv_sec = now / 1000000000;
	time->tv_nsec = now % 1000000000;
	return 0;
}

EXPORT int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
	struct timespec precise;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &precise);
	time->tv_sec = precise.tv_sec;
	time->tv_usec = precise.tv_nsec / 1000;
	return 0;
}

/* ---- conditions ---- */

EXPORT int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	int result;

	if (self) {
		sleep_cpu(condition, mutex);
		return 0;
	}
	if (!is_main)
		return real_cond_wait(condition, mutex);
	main_sleeps(true);
	result = real_cond_wait(condition, mutex);
	main_sleeps(false);
	return result;
}

EXPORT int pthread_cond_broadcast(pthread_cond_t *condition)
{
	wake_cpus(condition);
	return real_broadcast(condition);
}

EXPORT int pthread_cond_signal(pthread_cond_t *condition)
{
	wake_cpus(condition);
	return real_signal(condition);
}

/* ---- events ---- */

/*
 * QEMU wakes its main loop by writing 8 bytes to an event descriptor. If a vCPU makes such a write, the write is a
 * request to the main loop.
 */
EXPORT ssize_t write(int fd, const void *bytes, size_t count)
{
	if (self && count == sizeof(uint64_t))
		ask_main();
	return syscall(SYS_write, fd, bytes, count);
}

static int poll_really(struct pollfd *polled, nfds_t count, int64_t ns)
{
	struct timespec limit = { ns / 1000000000, ns % 1000000000 };

	return (int)syscall(SYS_ppoll, polled, count, ns == FOREVER ? NULL : &limit, NULL, 8);
}

/* Return how long in real time the main loop may wait, if its next timer is due in `ahead_ns` of virtual time. */
static int64_t longest_rest(bool idle, int64_t ahead_ns)
{
	/*
	 * Limit the wait. If QEMU's main loop holds QEMU's lock while it waits for a timer, no virtual CPU can run.
	 * While no virtual CPU runs, virtual time stands still, so without the limit, the timer would never be due.
	 */
	if (!idle)
		return PATIENCE_NS;
	return settings.idle_rate > 0 ? idle_rest_ns(ahead_ns) : 0;
}

EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *limit, const sigset_t *mask)
{
	struct pollfd polled[MAX_POLLED + 1];
	int64_t deadline = FOREVER;
	int ready;

	if (!is_main || !clock_runs() || count > MAX_POLLED)
		return (int)syscall(SYS_ppoll, fds, count, limit, mask, 8);
	memcpy(polled, fds, count * sizeof(*fds));
	polled[count] = (struct pollfd){ .fd = main_descriptor(), .events = POLLIN };
	if (limit)
		deadline = now_ns() + limit->tv_sec * 1000000000LL + limit->tv_nsec;
	for (;;) {
		int64_t before, start;
		bool idle;

		main_looks();
		ready = poll_really(polled, count, 0);
		before = now_ns();
		if (ready || before >= deadline)
			break;
		idle = main_rests(deadline);
		if (main_is_asked()) {
			main_goes_on(false, false, 0);
			continue;
		}
		start = real_ns(CLOCK_MONOTONIC);
		ready = poll_really(polled, count + 1,
				    limit ? longest_rest(idle, deadline - before) : FOREVER);
		main_goes_on(idle, ready == 0, real_ns(CLOCK_MONOTONIC) - start);
		if (!idle && ready == 0 && now_ns() == before) {
			statistics->early++;
			break;
		}
	}
	memcpy(fds, polled, count * sizeof(*fds));
	return ready;
}
