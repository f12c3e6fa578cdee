/* SPDX-License-Identifier: MIT */
/* What the programs of this folder have in common: how they are told to end, and what they say when they cannot go on. */
#ifndef SIPSCHED_PROGRAM_H
#define SIPSCHED_PROGRAM_H
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
	(void)number;
	stop_asked = 1;
}

/* SIGTERM and SIGINT come from now on only where they are waited for: with no signal blocked. */
static inline void await_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
}

/* Say why in one line; gives the exit code. */
static inline int fail(const char *what, int error)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(error));
	return 1;
}

/* Leave an empty file that says that all is ready; gives the exit code. */
static inline int write_ready(const char *path)
{
	FILE *file = fopen(path, "w");

	return !file || fclose(file) ? fail(path, errno) : 0;
}
#endif
