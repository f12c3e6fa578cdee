/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_RUN_H
#define SIPSCHED_RUN_H
#include <stdint.h>
#include "../common/program.h"
#include "samples.h"

struct run_options {
	const char *plan;
	const char *log;
	const char *probe_control; /* path of the probe's socket; NULL: no probe */
	int fifo;                  /* SCHED_FIFO priority of switcher itself; 0: switcher keeps its policy */
	uint16_t port, last_port;  /* first and last port of the proxy */
	bool tcp;
	struct cpu_set cpus;
	struct proxy_tasks tasks;
};

enum exit_code run(const struct run_options *options);
#endif
