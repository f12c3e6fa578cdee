// SPDX-License-Identifier: MIT
#include "recording.h"
#include "system.h"

/*
 * Longest time that switch_off() waits until workers have served all queued datagrams. A full queue would need more
 * time.
 */
#define FINISH_NS 50000000ULL
#define LOOK_NS   500000L

uint64_t count_unaccounted(const struct probe_counters *counted)
{
	uint64_t known = counted->received - counted->unmatched + counted->refused;

	return counted->arrived > known ? counted->arrived - known : 0;
}

/*
 * Return the number of datagrams that arrived since recording began, and that are neither received nor refused yet. For
 * TCP, return the number of connections with unread data.
 */
static uint64_t count_underway(const struct recording *recording)
{
	const struct probe_counters now = sum_counters(recording->probe->object);
	const struct probe_counters counted = counters_between(&recording->at_on, &now);

	return count_unaccounted(&counted) + count_unread(recording->streams);
}

/* Return the number of messages that workers have received, but not sent on yet. */
static uint64_t count_in_service(const struct recording *recording)
{
	return count_serving(recording->workers) + count_waiting(recording->streams);
}

void begin_recording(struct recording *recording)
{
	struct sipprobe__bss *state = recording->probe->object->bss;

	recording->at_on = sum_counters(recording->probe->object);
	recording->on = true;
	state->since_ns = clock_ns();
	recording->streams->since_ns = state->since_ns;
	recording->streams->until_ns = 0;
	__sync_synchronize(); /* the hooks must see the new since_ns before they see that `recording` is 1 */
	state->recording = 1;
}

void recording_afresh(struct recording *recording, uint64_t t_ns)
{
	recording->switches_off = 0;
	recording->off_ns = 0;
	recording->cut_arrivals = 0;
	recording->cut_services = 0;
	recording->slowest_off_ns = 0;
	recording->slowest_on_ns = 0;
	recording->t_off_ns = t_ns;
}

void switch_off(struct recording *recording)
{
	uint64_t begin = clock_ns();
	uint64_t took;

	if (!recording->on)
		return;
	recording->on = false;
	recording->probe->object->bss->recording = 0;
	while (clock_ns() - begin < FINISH_NS) {
		/* Wait before the first check, because a hook on another CPU may still be recording an arrival. */
		pause_ns(LOOK_NS);
		ring_buffer__consume(recording->ring);
		if (!count_underway(recording) && !count_in_service(recording))
			break;
	}
	recording->streams->until_ns = clock_ns();
	detach_probe(recording->probe);
	/*
	 * The detached hooks miss events, so the stored arrivals are now incomplete. With the largest value of
	 * since_ns, the programs discard all arrivals until begin_recording() sets since_ns again.
	 */
	recording->probe->object->bss->since_ns = UINT64_MAX;
	ring_buffer__consume(recording->ring);
	recording->cut_arrivals += count_underway(recording);
	recording->cut_services += count_in_service(recording);
	forget_streams(recording->streams);
	recording->switches_off++;
	recording->t_off_ns = begin;
	took = clock_ns() - begin;
	if (took > recording->slowest_off_ns)
		recording->slowest_off_ns = took;
}

int switch_on(struct recording *recording)
{
	uint64_t begin = clock_ns();
	uint64_t end;
	int error;

	if (recording->on)
		return 0;
	scan_workers(recording->workers);
	forget_services(recording->workers);
	error = attach_probe(recording->probe);
	if (error)
		return error;
	begin_recording(recording);
	end = clock_ns();
	recording->off_ns += end - recording->t_off_ns;
	if (end - begin > recording->slowest_on_ns)
		recording->slowest_on_ns = end - begin;
	return 0;
}

void end_recording(struct recording *recording, uint64_t t_ns)
{
	if (recording->on)
		return;
	recording->off_ns += t_ns - recording->t_off_ns;
	forget_services(recording->workers);
}
