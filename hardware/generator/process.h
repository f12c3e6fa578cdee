/* SPDX-License-Identifier: MIT */
/* Functions with which client and server request settings for their processes and threads from the kernel. */
#ifndef SIPSCHED_PROCESS_H
#define SIPSCHED_PROCESS_H
#include <stdint.h>
#include "../common/program.h"

/*
 * Catch SIGINT and SIGTERM, and raise the limit of file descriptors. If `fifo` is not 0, request SCHED_FIFO with this
 * priority. Threads inherit the policy.
 */
void prepare_process(int fifo);
/* Pin the calling thread to its CPU in the list, unless the list is empty. Request exact timer wake-ups. */
void settle_thread(const int *cpus, unsigned n_cpus, unsigned thread);
/* Return a number that differs between processes with high probability. */
uint32_t new_instance(void);
#endif
