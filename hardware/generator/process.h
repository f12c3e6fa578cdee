/* SPDX-License-Identifier: MIT */
/* The settings of process and threads that both roles request from the operating system. */
#ifndef SIPSCHED_PROCESS_H
#define SIPSCHED_PROCESS_H
#include <stdint.h>
#include "../common/program.h"

/*
 * Catch SIGINT and SIGTERM, raise the limit of file descriptors, and ask for SCHED_FIFO with priority `fifo` unless that is 0.
 * Threads inherit the policy.
 */
void prepare_process(int fifo);
/* Pin the calling thread to its CPU of the list, if the list has CPUs, and let its sleeps end on time. */
void settle_thread(const int *cpus, unsigned n_cpus, unsigned thread);
/* Return a number that most probably no other process has. */
uint32_t new_instance(void);
#endif
