// SPDX-License-Identifier: MIT
/*
 * competitor competes with the proxy for its CPUs: at the beginning of each period, or for each line that a program
 * logs, it computes for a fixed CPU time.
 *
 * USAGE
 *   competitor NAME BUSY_US PERIOD_US     runs until SIGINT or SIGTERM; pin it with taskset
 *   competitor NAME BUSY_US SOCKET        computes for each datagram at the Unix socket SOCKET, such as /dev/log. At its
 *                                         end, it prints how many datagrams it has read
 *
 * HOW IT WORKS
 *   The kernel shows the task under NAME, of at most 15 characters. The competitor keeps the scheduling policy and the
 *   nice value with which it was started. The competitor measures its own CPU time, so it does the same work even if
 *   other tasks preempt it. If its work lasts longer than a period, it skips the periods whose beginnings it missed.
 *   If BUSY_US equals PERIOD_US, the competitor computes all the time.
 *
 *   The socket is the one of syslog(3), which blocks its caller if too many datagrams wait at the socket
 *   (net.unix.max_dgram_qlen). At its end, competitor has printed the first LINES_SHOWN lines, such as errors at the
 *   start of the program.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include "../common/arguments.h"
#include "../common/clock.h"
#include "../common/program.h"

#define NAME_MAX_LENGTH 15
#define LONGEST_US      10000000
#define LOOPS_PER_LOOK  200 /* number of loops between two clock readings; 200 loops take less than 1 us */
#define LINES_SHOWN     100
#define LINE_MAX_LENGTH 8192

static void compute(uint64_t busy_ns)
{
	uint64_t start = read_clock(CLOCK_THREAD_CPUTIME_ID);

	do {
		for (int i = 0; i < LOOPS_PER_LOOK; i++)
			__asm__ volatile("" ::: "memory");
	} while (read_clock(CLOCK_THREAD_CPUTIME_ID) - start < busy_ns);
}

static void sleep_until(uint64_t ns)
{
	struct timespec until = { .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR && !stop_asked)
		;
}

/* Bind a socket to a path. Replace a socket that no program reads any more. Return -1 and set errno on an error. */
static int bind_path(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	memccpy(address.sun_path, path, 0, sizeof(address.sun_path) - 1);
	if (!bind(fd, (struct sockaddr *)&address, sizeof(address)))
		return fd;
	if (errno == EADDRINUSE) {
		if (!connect(fd, (struct sockaddr *)&address, sizeof(address)) || errno != ECONNREFUSED)
			errno = EADDRINUSE;
		else if (!unlink(path) && !bind(fd, (struct sockaddr *)&address, sizeof(address)))
			return fd;
	}
	close(fd);
	return -1;
}

/* Compute for each datagram that arrives at a socket, until a signal asks for the end. */
static int read_log(const char *path, uint64_t busy_ns)
{
	unsigned long lines = 0;
	char line[LINE_MAX_LENGTH];
	int fd = bind_path(path);
	struct timeval longest = { .tv_sec = 1 }; /* look for a signal at least this often */

	/* syslog(3) is open to every user */
	if (fd < 0 || chmod(path, 0666) || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest)))
		return fail(path, errno == EADDRINUSE ? "another program reads this socket; stop it"
						      : strerror(errno));
	while (!stop_asked) {
		ssize_t length = recv(fd, line, sizeof(line), 0);

		if (length < 0)
			continue;
		compute(busy_ns);
		if (lines++ < LINES_SHOWN)
			printf("%.*s\n", (int)length, line);
	}
	unlink(path);
	printf("%lu lines\n", lines);
	return EXIT_GOOD;
}

int main(int argc, char **argv)
{
	bool reads = argc == 4 && *argv[3] == '/';
	long long busy_us, period_us = LONGEST_US;
	uint64_t begin, period_ns;

	if (argc != 4 || !*argv[1] || strlen(argv[1]) > NAME_MAX_LENGTH ||
	    (!reads && !parse_whole(argv[3], 1, LONGEST_US, &period_us)) ||
	    !parse_whole(argv[2], 1, period_us, &busy_us)) {
		complain("usage: competitor NAME BUSY_US PERIOD_US|SOCKET; NAME has 1 to %d characters, "
			 "BUSY_US is 1 to PERIOD_US, PERIOD_US is 1 to %d, and SOCKET is an absolute path",
			 NAME_MAX_LENGTH, LONGEST_US);
		return EXIT_USAGE;
	}
	if (prctl(PR_SET_NAME, argv[1]))
		return fail("name", strerror(errno));
	catch_signals();
	if (reads)
		return read_log(argv[3], (uint64_t)busy_us * NS_PER_US);
	period_ns = (uint64_t)period_us * NS_PER_US;
	begin = clock_ns();
	while (!stop_asked) {
		compute((uint64_t)busy_us * NS_PER_US);
		if (busy_us == period_us)
			continue;
		begin += (1 + (clock_ns() - begin) / period_ns) * period_ns;
		sleep_until(begin);
	}
	return EXIT_GOOD;
}
