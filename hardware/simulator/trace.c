// SPDX-License-Identifier: MIT
#include <string.h>
#include "sim.h"

#define TID_FIRST 1000

/* Return a 64-bit hash of a call's number, which is never 0, because 0 means that a message has no Call-ID. */
uint64_t call_hash(uint64_t call)
{
	uint64_t state = call;

	return splitmix64(&state) | 1;
}

static void emit(struct sim *sim, const struct trace_record *record)
{
	if (fwrite(record, sizeof(*record), 1, sim->trace) != 1)
		sim->failure = "cannot write the trace";
}

void trace_open(struct sim *sim, FILE *file)
{
	struct trace_header header = {
		.version = TRACE_VERSION,
		.record_size = sizeof(struct trace_record),
		.mode = TRACE_MODE_EXACT,
	};

	memcpy(header.magic, TRACE_MAGIC, sizeof(header.magic));
	setvbuf(file, NULL, _IOFBF, 1 << 20);
	sim->trace = file;
	if (fwrite(&header, sizeof(header), 1, file) != 1)
		sim->failure = "cannot write the trace";
}

/*
 * Set the fields that records of messages and of drops have in common. Add T0 to all times, because 0 in a record means
 * unknown.
 */
static void describe(const struct sim *sim, struct trace_record *r, const struct timer *message)
{
	r->t_arr += T0_NS;
	r->t_stack += T0_NS;
	r->call_id_hash = call_hash(message->call);
	r->cseq = 1 + (message->kind == TRACE_KIND_BYE || message->kind == TRACE_KIND_200_BYE);
	r->length = (uint16_t)sim->model.length[message->kind];
	r->kind = message->kind;
}

void trace_message(struct sim *sim, const struct worker *w)
{
	struct trace_record r = w->record;

	if (!sim->trace)
		return;
	describe(sim, &r, &w->message);
	r.t_sockq += T0_NS;
	r.t_sip_in += T0_NS;
	r.t_sip_out += T0_NS;
	r.t_dep += T0_NS;
	r.tid = TID_FIRST + w->id;
	r.event = TRACE_EVENT_MESSAGE;
	r.n_send = 1 + (sim->model.trying && w->message.kind == TRACE_KIND_INVITE);
	emit(sim, &r);
}

void trace_drop(struct sim *sim, const struct cpu *cpu, const struct timer *message)
{
	struct trace_record r = {
		.t_arr = message->since,
		.t_stack = message->at,
		.rmem = message->rmem,
		.cpu = cpu ? (uint16_t)cpu->id : 0,
		.event = TRACE_EVENT_DROP,
		.drop_reason = 12, /* ENOMEM, which the kernel counts as RcvbufErrors */
	};

	if (!sim->trace)
		return;
	describe(sim, &r, message);
	emit(sim, &r);
}
