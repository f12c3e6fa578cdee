/* SPDX-License-Identifier: MIT */
/* Functions that switch the recording off and on while the proxy serves calls. */
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
	struct streams *streams; /* state of the TCP connections; unused for UDP */
	bool on;
	struct probe_counters at_on; /* counters when recording was last switched on */
	uint64_t t_off_ns;           /* time when recording was last switched off */
	/* recording_afresh() sets the following counters to 0 at the start and at each SIGUSR1. */
	uint64_t switches_off;
	uint64_t off_ns; /* total time from the start of each switch-off until recording was on again */
	/* Datagrams that no worker had received at a switch-off. For TCP, connections with unread data. */
	uint64_t cut_arrivals;
	uint64_t cut_services;   /* messages in service at a switch-off, which the trace lacks */
	uint64_t slowest_off_ns; /* duration of the slowest switch-off */
	uint64_t slowest_on_ns;
};

/* Return the number of arrived datagrams that are neither counted as received nor as refused. */
uint64_t count_unaccounted(const struct probe_counters *counted);

/* Begin to record arrivals. All hooks must be attached. */
void begin_recording(struct recording *recording);
/* Reset the counters and start counting at t_ns. */
void recording_afresh(struct recording *recording, uint64_t t_ns);
/* Stop recording. Wait at most 50 ms until workers have served all queued messages, and detach every hook. */
void switch_off(struct recording *recording);
/* Attach the hooks again, start recording and return 0. On failure, recording stays off: return an errno value. */
int switch_on(struct recording *recording);
/*
 * If recording is off at the end of a run (t_ns), add the time since the switch-off to off_ns, and discard the
 * messages that workers were serving at the switch-off.
 */
void end_recording(struct recording *recording, uint64_t t_ns);
#endif
