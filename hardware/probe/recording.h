/* SPDX-License-Identifier: MIT */
/* Recording, switched off and on again while the proxy serves. */
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
	struct streams *streams; /* over UDP there is none in it */
	bool on;
	struct probe_counters at_on; /* when it was switched on last */
	uint64_t t_off_ns;           /* when it was switched off last */
	/* since the fresh start */
	uint64_t switches_off;
	uint64_t off_ns; /* time without hooks, whole or in part */
	uint64_t
		cut_arrivals; /* had not been received when recording was switched off; over TCP connections */
	uint64_t cut_services;   /* were received, but still in service then: not in the trace */
	uint64_t slowest_off_ns; /* of the switches, how long one took */
	uint64_t slowest_on_ns;
};

/* Arrivals that no worker received and no refusal names. */
uint64_t count_unaccounted(const struct probe_counters *counted);

/* Everything is attached: enter what arrives from now on. */
void begin_recording(struct recording *recording);
/* Count from here on, at t_ns. */
void recording_afresh(struct recording *recording, uint64_t t_ns);
/* Finish what is in the queue and in service, for 50 ms at most, and let go of every hook. */
void switch_off(struct recording *recording);
/* Attach again; gives 0 or an errno value, and then it stays off. */
int switch_on(struct recording *recording);
/* The run ends at t_ns. */
void end_recording(struct recording *recording, uint64_t t_ns);
#endif
