/* SPDX-License-Identifier: MIT */
/* How a program reports errors, announces that it is ready, and learns that it has to stop. */
#ifndef SIPSCHED_PROGRAM_H
#define SIPSCHED_PROGRAM_H
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

enum exit_code {
	EXIT_GOOD = 0,
	EXIT_BAD = 1,   /* one line on stderr gives the reason */
	EXIT_USAGE = 2, /* wrong usage; one line on stderr gives the correct usage */
};

/* Print one line on stderr: the program's name and the message. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Print "PROGRAM: what: why" on stderr and return EXIT_BAD. */
int fail(const char *what, const char *why);
/* Return allocated memory, or end the program if it is NULL. */
void *keep(void *memory);
/* Make an empty file, which announces that the program is ready. If that fails, print a line and return false. */
bool write_ready(const char *path);

/* SIGINT or SIGTERM arrived, after catch_signals(). */
extern volatile sig_atomic_t stop_asked;
/* Let SIGINT and SIGTERM set `stop_asked`. */
void catch_signals(void);
/* Block SIGINT and SIGTERM. Return the set of both, for sigwait() and signalfd(). */
sigset_t block_signals(void);
#endif
