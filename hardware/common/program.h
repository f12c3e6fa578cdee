/* SPDX-License-Identifier: MIT */
/* Functions with which a program reports errors, announces that it is ready, and handles SIGINT and SIGTERM. */
#ifndef SIPSCHED_PROGRAM_H
#define SIPSCHED_PROGRAM_H
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

enum exit_code {
	EXIT_GOOD = 0,
	EXIT_BAD = 1,   /* an error, for which the program prints one line on stderr */
	EXIT_USAGE = 2, /* wrong usage; the program prints the correct usage on stderr */
};

/* Print one line on stderr: the program's name and the message. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Print "PROGRAM: what: why" on stderr, and return EXIT_BAD, so that main() can return this value. */
int fail(const char *what, const char *why);
/* Return `memory`. If `memory` is NULL because an allocation failed, print one line and exit with EXIT_BAD. */
void *keep(void *memory);
/* Create an empty file to announce that the program is ready. On failure, print one line and return false. */
bool write_ready(const char *path);

/* 1 if SIGINT or SIGTERM has arrived since catch_signals(). */
extern volatile sig_atomic_t stop_asked;
/* Let SIGINT and SIGTERM set `stop_asked`. */
void catch_signals(void);
/* Block SIGINT and SIGTERM. Return the set of both signals for sigwait() and signalfd(). */
sigset_t block_signals(void);
#endif
