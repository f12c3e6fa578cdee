/* SPDX-License-Identifier: MIT */
/* Recording, which can be switched off and on while the proxy serves. */
#ifndef SIPSCHED_RECORDING_H
#define SIPSCHED_RECORDING_H
#include <stdbool.h>
#include <stdint.h>
#include <bpf/libbpf.h>
#include "attach.h"
#include "counters.h"
#include "streams.h"
#include "workers.h"

struct recording {
	struct probe *probe;
	struct workers *workers;
	struct ring_buffer *ring;
	struct streams *streams; /* empty for UDP */
	bool on;
	struct probe_counters at_on; /* at the last switch-on */
	uint64_t t_off_ns;           /* time of the last switch-off */
	/* since the start or the last SIGUSR1 */
	uint64_t switches_off;
	uint64_t off_ns; /* time without all hooks */
	uint64_t
		cut_arrivals; /* datagrams that no worker had received at a switch-off; connections for TCP */
	uint64_t cut_services;   /* messages in service at a switch-off, which the trace lacks */
	uint64_t slowest_off_ns; /* duration of the slowest switch-off */
	uint64_t slowest_on_ns;
};

/* Return the number of arrivals that were neither received nor refused. */
uint64_t count_unaccounted(const struct probe_counters *counted);

/* Begin to enter arrivals, when all hooks are attached. */
void begin_recording(struct recording *recording);
/* Start counting again at t_ns. */
void recording_afresh(struct recording *recording, uint64_t t_ns);
/* Finish the messages in the queue and in service, for at most 50 ms, and detach every hook. */
void switch_off(struct recording *recording);
/* Attach the hooks again. Return 0, or an errno value if this failed; then recording stays off. */
int switch_on(struct recording *recording);
/* End the counting at t_ns. */
void end_recording(struct recording *recording, uint64_t t_ns);
#endif
