/* SPDX-License-Identifier: MIT */
/* What both roles ask of the operating system for their process and threads, and how they end. */
#ifndef SIPSCHED_PROCESS_H
#define SIPSCHED_PROCESS_H
#include <signal.h>
#include <stdint.h>

enum {
	EXIT_GOOD = 0,
	EXIT_BAD = 1,   /* a line on stderr says why */
	EXIT_USAGE = 2, /* wrong usage */
};

extern volatile sig_atomic_t stop_asked; /* SIGINT or SIGTERM came */

/* One line on stderr; gives EXIT_BAD. */
int fail(const char *what, const char *why);
/*
 * Let SIGINT and SIGTERM set stop_asked, raise the limit of descriptors, and ask for SCHED_FIFO where `fifo` is not 0;
 * threads inherit it.
 */
void prepare_process(int fifo);
/* Pin the calling thread to its CPU of the list, if there is one, and let its sleeps end on time. */
void settle_thread(const int *cpus, unsigned n_cpus, unsigned thread);
/* A number that hardly any other process has. */
uint32_t new_instance(void);
#endif
