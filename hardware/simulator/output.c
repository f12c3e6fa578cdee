// SPDX-License-Identifier: MIT
#include <inttypes.h>
#include <string.h>
#include "output.h"

static const char *const NAMES[KINDS] = { "other", "INVITE", "180", "200_INVITE", "ACK", "BYE", "200_BYE" };
static const char *const WAYS[SPENT_WAYS] = { "idle", "task", "receive", "switch", "stall" };

static uint64_t moved(uint64_t at)
{
	return at ? at + T0_NS : 0;
}

/*
 * Set the outcome of a call that is open at the end of the simulation. The call has timed out (timer B or F of RFC
 * 3261) or is unfinished.
 */
static void decide(const struct sim *sim, uint64_t index, struct call_record *r)
{
	uint64_t longest = 64 * sim->model.t1_ns;

	if (r->outcome == CALL_COMPLETED || index >= sim->next_call)
		return;
	if (!r->t_first_response && sim->now >= r->t_invite + longest)
		r->outcome = CALL_TIMEOUT_INVITE;
	else if (r->t_bye && sim->now >= r->t_bye + longest)
		r->outcome = CALL_TIMEOUT_BYE;
	else
		r->outcome = CALL_UNFINISHED;
}

bool output_calls(struct sim *sim, FILE *file)
{
	struct calls_header header = {
		.version = CALLS_VERSION,
		.record_size = sizeof(struct call_record),
		.count = sim->model.calls,
		.t0 = T0_NS,
	};
	bool good;

	memcpy(header.magic, CALLS_MAGIC, sizeof(header.magic));
	good = fwrite(&header, sizeof(header), 1, file) == 1;
	for (uint64_t i = 0; good && i < sim->model.calls; i++) {
		struct call_record *call = &sim->calls[i].record, r;

		decide(sim, i, call);
		r = *call;
		r.call_id_hash = call_hash(i);
		r.t_intended = sim->schedule.calls[i].offset_ns + T0_NS;
		/* a call may start at time 0 of the simulation, so test the call's number instead of the time */
		r.t_invite = i < sim->next_call ? r.t_invite + T0_NS : 0;
		r.t_first_response = moved(r.t_first_response);
		r.t_ringing = moved(r.t_ringing);
		r.t_ok_invite = moved(r.t_ok_invite);
		r.t_ack = moved(r.t_ack);
		r.t_bye = moved(r.t_bye);
		r.t_ok_bye = moved(r.t_ok_bye);
		r.status = r.t_ok_bye || r.t_ok_invite ? 200 : 0;
		good = fwrite(&r, sizeof(r), 1, file) == 1;
	}
	return good;
}

static bool is_late(const struct sim *sim, const struct call_record *r)
{
	return r->t_ok_invite > r->t_invite + sim->model.ring_ns + sim->model.setup_limit_ns;
}

void output_uac(const struct sim *sim, FILE *file)
{
	const struct counts *c = &sim->counts;
	uint64_t outcomes[CALL_OUTCOMES] = { 0 }, no_ringing = 0, late = 0;
	const struct scheduled_call *calls = sim->schedule.calls;
	uint64_t first = calls[0].offset_ns,
		 last = sim->next_call ? calls[sim->next_call - 1].offset_ns : first;
	const char *comma = "";

	for (uint64_t i = 0; i < sim->model.calls; i++) {
		const struct call_record *r = &sim->calls[i].record;

		outcomes[r->outcome]++;
		no_ringing += r->t_ok_invite && !r->t_ringing;
		late += r->outcome == CALL_COMPLETED && is_late(sim, r);
	}
	fprintf(file, "{\n  \"version\": %d,\n  \"role\": \"uac\",\n  \"transport\": \"%s\",\n",
		SIPSIM_VERSION, sim->model.streams ? "tcp" : "udp");
	fprintf(file, "  \"simulated\": true,\n  \"retransmissions\": %s,\n",
		sim->model.retransmissions ? "true" : "false");
	fprintf(file, "  \"t0\": %d,\n  \"scheduler\": \"other\",\n", T0_NS);
	fprintf(file, "  \"wall_ns\": %" PRIu64 ",\n  \"cpu_ns\": 0,\n", sim->now ? sim->now : 1);
	fprintf(file,
		"  \"calls\": {\"offered\": %" PRIu64 ", \"started\": %" PRIu64 ", \"not_started\": %" PRIu64
		", \"completed\": %" PRIu64 ", \"timeout_invite\": %" PRIu64 ", \"timeout_bye\": %" PRIu64
		", \"rejected_invite\": 0, \"rejected_bye\": 0, \"unfinished_at_end\": %" PRIu64
		", \"no_connection\": 0, \"no_ringing\": %" PRIu64 ", \"distinct\": %" PRIu64,
		sim->model.calls, sim->next_call, sim->model.calls - sim->next_call, outcomes[CALL_COMPLETED],
		outcomes[CALL_TIMEOUT_INVITE], outcomes[CALL_TIMEOUT_BYE], outcomes[CALL_UNFINISHED],
		no_ringing, sim->schedule.header.distinct);
	if (sim->model.streams)
		fprintf(file, ", \"late\": %" PRIu64, late);
	fprintf(file, "},\n");
	if (sim->model.streams)
		fprintf(file,
			"  \"connections\": {\"opened\": %" PRIu64
			", \"again\": 0, \"lost\": 0, \"cut\": 0, \"blocked\": 0, "
			"\"blocked_ns\": 0},\n",
			sim->model.connections ? sim->model.connections : sim->next_call);
	fprintf(file, "  \"achieved_cps\": %.3f,\n",
		last > first ? (double)(sim->next_call - 1) * 1e9 / (double)(last - first) : 0.0);
	fprintf(file, "  \"sockets\": {\"drops\": 0},\n  \"no_ports\": 0,\n  \"unparsable\": 0,\n");
	fprintf(file, "  \"overtaken\": %" PRIu64 ",\n  \"messages\": {", c->overtaken);
	for (int kind = TRACE_KIND_INVITE; kind < KINDS; kind++) {
		bool uac = kind == TRACE_KIND_INVITE || kind == TRACE_KIND_ACK || kind == TRACE_KIND_BYE;

		fprintf(file,
			"%s\n    \"%s\": {\"sent\": %" PRIu64 ", \"sent_again\": %" PRIu64
			", \"not_sent\": 0, \"received\": %" PRIu64 ", \"received_again\": %" PRIu64
			", \"unexpected\": 0}",
			comma, NAMES[kind], uac ? c->sent[kind] : 0, uac ? c->sent_again[kind] : 0,
			uac ? 0 : c->received_kind[kind] - c->received_again[kind],
			uac ? 0 : c->received_again[kind]);
		comma = ",";
	}
	fprintf(file, "\n  }\n}\n");
}

static void write_calls(const struct sim *sim, FILE *file)
{
	uint64_t good = 0;

	for (uint64_t i = 0; i < sim->next_call; i++) {
		const struct call_record *r = &sim->calls[i].record;

		good += r->outcome == CALL_COMPLETED && !is_late(sim, r);
	}
	fprintf(file, ",\n  \"calls_started\": %" PRIu64 ",\n  \"calls_good\": %" PRIu64, sim->next_call,
		good);
}

static void write_workers(const struct sim *sim, FILE *file, uint32_t first, uint32_t end)
{
	for (uint32_t i = first; i < end; i++) {
		const struct worker *w = &sim->workers[i];

		fprintf(file,
			"%s\n    {\"messages\": %" PRIu64 ", \"ran_ns\": %" PRIu64 ", \"spun_ns\": %" PRIu64
			", \"switches\": %" PRIu64 ", \"preemptions\": %" PRIu64 ", \"wakeups\": %" PRIu64
			", \"migrations\": %" PRIu64 ", \"transfers\": %" PRIu64
			", \"empty_receives\": %" PRIu64 ", \"yields\": %" PRIu64 ", \"charged_ns\": %" PRIu64
			"}",
			i > first ? "," : "", w->messages, w->ran_ns, w->spun_ns, w->switches, w->preemptions,
			w->wakeups, w->migrations, w->transfers, w->empty_receives, w->yields, w->charged_ns);
	}
}

static void write_sockets(const struct sim *sim, FILE *file)
{
	fprintf(file, ",\n  \"selected\": [");
	for (uint32_t i = 0; i < sim->model.sockets; i++)
		fprintf(file, "%s%" PRIu64, i ? ", " : "", sim->sockets[i].chosen);
	fprintf(file, "]");
}

void output_report(const struct sim *sim, FILE *file)
{
	const struct counts *c = &sim->counts;
	const char *comma = "";

	fprintf(file, "{\n  \"version\": %d,\n  \"t_end_ns\": %" PRIu64 ",\n  \"events\": %" PRIu64 ",\n",
		SIPSIM_VERSION, sim->now, c->events);
	fprintf(file,
		"  \"arrived\": %" PRIu64 ",\n  \"received\": %" PRIu64 ",\n  \"refused\": %" PRIu64
		",\n  \"served\": %" PRIu64 ",\n  \"datagrams_sent\": %" PRIu64 ",\n",
		c->arrived, c->received, c->refused, c->left, c->datagrams_sent);
	fprintf(file,
		"  \"sent_to_uac\": %" PRIu64 ",\n  \"wakeups\": %" PRIu64 ",\n  \"idle_wakeups\": %" PRIu64
		",\n",
		c->received_kind[TRACE_KIND_180] + c->received_kind[TRACE_KIND_200_INVITE] +
			c->received_kind[TRACE_KIND_200_BYE] + c->datagrams_sent - c->left,
		c->wakeups, c->idle_wakeups);
	fprintf(file, "  \"k_rcv_ns\": %" PRIu64 ",\n  \"t_sip_ns\": %" PRIu64 ",\n", c->k_rcv_ns,
		c->t_sip_ns);
	fprintf(file, "  \"from_uac\": %" PRIu64 ",\n",
		c->sent[TRACE_KIND_INVITE] + c->sent_again[TRACE_KIND_INVITE] + c->sent[TRACE_KIND_ACK] +
			c->sent_again[TRACE_KIND_ACK] + c->sent[TRACE_KIND_BYE] +
			c->sent_again[TRACE_KIND_BYE]);
	fprintf(file, "  \"cpus\": [");
	for (uint32_t i = 0; i < sim->n_cpus; i++) {
		fprintf(file, "%s\n    {", comma);
		for (int way = 0; way < SPENT_WAYS; way++)
			fprintf(file, "%s\"%s\": %" PRIu64, way ? ", " : "", WAYS[way],
				sim->cpus[i].spent[way]);
		fprintf(file, "}");
		comma = ",";
	}
	fprintf(file, "\n  ],\n  \"workers\": [");
	write_workers(sim, file, 0, sim->model.workers);
	fprintf(file, "\n  ]");
	if (sim->model.streams)
		write_calls(sim, file);
	if (sim->model.sockets > 1)
		write_sockets(sim, file);
	if (sim->n_others) {
		fprintf(file, ",\n  \"others\": [");
		write_workers(sim, file, sim->n_workers, sim->n_workers + sim->n_others);
		fprintf(file, "\n  ]");
	}
	if (sim->model.fronts) {
		fprintf(file, ",\n  \"passed\": %" PRIu64 ",\n  \"fronts\": [", c->passed);
		write_workers(sim, file, sim->model.workers, sim->n_workers);
		fprintf(file, "\n  ]");
	}
	fprintf(file, "\n}\n");
}
