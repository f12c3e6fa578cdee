// SPDX-License-Identifier: MIT
/*
 * The simulated UAC and UAS (RFC 3261). A message needs link_ns from an agent to the SPS, and link_ns from the SPS to an
 * agent. The agents themselves take no time.
 */
#include "sim.h"

static void push(struct sim *sim, struct fifo *fifo, struct timer timer)
{
	if (!fifo_push(fifo, timer))
		sim->failure = "not enough memory";
}

/* Set the timer for the next retransmission. `timer.again` is the retransmission number of the datagram just sent. */
static void set_retransmission(struct sim *sim, struct timer timer)
{
	const struct model *m = &sim->model;
	uint32_t length = timer.again < TIMER_LENGTHS - 1 ? timer.again : TIMER_LENGTHS - 2;
	uint64_t delay = m->t1_ns << length;

	if (!m->retransmissions)
		return;
	/*
	 * the time between two transmissions doubles each time: for INVITE without a limit (RFC 3261 17.1.1.2), and for BYE
	 * (17.1.2.2) and 200 (13.3.1.4) up to T2
	 */
	if (timer.kind != TRACE_KIND_INVITE && delay >= m->t2_ns) {
		length = TIMER_LENGTHS - 1;
		delay = m->t2_ns;
	}
	timer.at = sim->now + delay;
	timer.again++;
	push(sim, &sim->timers[length], timer);
}

/* Count a datagram that an agent sent, and let it arrive at the SIP proxy server (SPS) now. */
static void reach(struct sim *sim, struct timer message)
{
	if (message.again)
		sim->counts.sent_again[message.kind]++;
	else
		sim->counts.sent[message.kind]++;
	cpu_packet(sim, message);
}

void agents_call(struct sim *sim)
{
	struct timer invite = { .call = (uint32_t)sim->next_call, .kind = TRACE_KIND_INVITE };
	struct call_record *record = &sim->calls[sim->next_call].record;

	record->t_intended = record->t_invite = sim->now - sim->model.link_ns;
	sim->next_call++;
	set_retransmission(sim, invite);
	reach(sim, invite);
}

/* Return whether timer B or F has ended the call: no answer came within 64 T1. */
static bool is_late(const struct sim *sim, uint64_t sent, uint64_t at)
{
	return at >= sent + 64 * sim->model.t1_ns;
}

static void retransmit(struct sim *sim, struct timer timer)
{
	struct call *call = &sim->calls[timer.call];
	struct call_record *record = &call->record;
	uint64_t sent = sim->now - sim->model.link_ns;

	if (timer.kind == TRACE_KIND_INVITE) {
		if ((record->t_first_response && record->t_first_response <= sent) ||
		    is_late(sim, record->t_invite, sent))
			return;
		record->invite_again++;
	} else if (timer.kind == TRACE_KIND_BYE) {
		if ((record->t_ok_bye && record->t_ok_bye <= sent) || is_late(sim, record->t_bye, sent))
			return;
		record->bye_again++;
	} else if ((call->uas_ack_at && call->uas_ack_at <= sent) || timer.again > 10) {
		/* the UAS repeats 200 for 64 T1, which is 11 repetitions (RFC 3261 13.3.1.4) */
		return;
	}
	set_retransmission(sim, timer);
	reach(sim, timer);
}

void agents_timer(struct sim *sim, enum source source)
{
	struct timer timer;

	if (source == SOURCE_SOON) {
		timer = fifo_pop(&sim->soon);
	} else if (source == SOURCE_RING) {
		timer = fifo_pop(&sim->ring);
		sim->calls[timer.call].uas_sent_ok = true;
		set_retransmission(sim, timer);
	} else if (source == SOURCE_HOLD) {
		timer = sim->model.hold_exponential ? heap_pop(&sim->held) : fifo_pop(&sim->hold);
		sim->calls[timer.call].record.t_bye = sim->now - sim->model.link_ns;
		set_retransmission(sim, timer);
	} else {
		retransmit(sim, fifo_pop(&sim->timers[source - SOURCE_TIMERS]));
		return;
	}
	reach(sim, timer);
}

static void answer(struct sim *sim, uint32_t call, enum trace_kind kind, uint8_t again)
{
	struct timer timer = {
		.at = sim->now + 2 * sim->model.link_ns, .call = call, .kind = kind, .again = again
	};

	push(sim, &sim->soon, timer);
}

static void hold_call(struct sim *sim, uint32_t call)
{
	struct timer bye = { .at = sim->now + 2 * sim->model.link_ns, .call = call, .kind = TRACE_KIND_BYE };
	uint64_t random;

	if (!sim->model.hold_exponential) {
		bye.at += sim->model.hold_ns;
		push(sim, &sim->hold, bye);
		return;
	}
	random = sim->schedule.calls[call].random;
	bye.at += (uint64_t)(draw_exponential(&random) * (double)sim->model.hold_ns + 0.5);
	if (!heap_push(&sim->held, bye))
		sim->failure = "not enough memory";
}

static void uas_receives(struct sim *sim, const struct timer *m, uint64_t at)
{
	struct call *call = &sim->calls[m->call];

	if (m->kind == TRACE_KIND_INVITE) {
		/* the UAS answers a repeated INVITE with 180, until it has sent a final answer (RFC 3261 17.2.1) */
		if (!call->uas_sent_ok)
			answer(sim, m->call, TRACE_KIND_180, call->uas_answered);
		if (!call->uas_answered)
			push(sim, &sim->ring,
			     (struct timer){ .at = sim->now + 2 * sim->model.link_ns + sim->model.ring_ns,
					     .call = m->call,
					     .kind = TRACE_KIND_200_INVITE });
		call->uas_answered = true;
	} else if (m->kind == TRACE_KIND_ACK) {
		if (!call->uas_ack_at)
			call->uas_ack_at = at;
	} else {
		answer(sim, m->call, TRACE_KIND_200_BYE, m->again);
	}
}

static void uac_receives(struct sim *sim, const struct timer *m, uint64_t at)
{
	struct call_record *record = &sim->calls[m->call].record;

	if (m->kind == TRACE_KIND_200_BYE) {
		if (record->t_ok_bye)
			return;
		record->t_ok_bye = at;
		record->outcome = CALL_COMPLETED;
		sim->open_calls--;
		return;
	}
	if (!record->t_first_response)
		record->t_first_response = at;
	if (m->kind == TRACE_KIND_180) {
		if (record->t_ok_invite)
			sim->counts.overtaken++;
		else if (!record->t_ringing)
			record->t_ringing = at;
	} else if (!record->t_ok_invite) {
		record->t_ok_invite = record->t_ack = at;
		answer(sim, m->call, TRACE_KIND_ACK, 0);
		hold_call(sim, m->call);
	} else {
		record->ok_again++;
		answer(sim, m->call, TRACE_KIND_ACK, 1);
	}
}

/* Let a message from the SPS arrive at an agent, and let the agent send its answer. */
void agents_receive(struct sim *sim, const struct timer *m)
{
	uint64_t at = sim->now + sim->model.link_ns;
	struct call_record *record = &sim->calls[m->call].record;

	sim->counts.received_kind[m->kind]++;
	sim->counts.received_again[m->kind] += m->again > 0;
	if (m->kind == TRACE_KIND_INVITE && sim->model.trying && !record->t_first_response)
		record->t_first_response = at;
	if (sim->over || !sim->model.answered)
		return;
	if (m->kind == TRACE_KIND_INVITE || m->kind == TRACE_KIND_ACK || m->kind == TRACE_KIND_BYE)
		uas_receives(sim, m, at);
	else
		uac_receives(sim, m, at);
}

void agents_set(struct sim *sim)
{
	struct tree *tree = &sim->tree;
	bool more = sim->next_call < sim->schedule.header.count;

	tree_set(tree, SOURCE_CALLS,
		 more ? sim->schedule.calls[sim->next_call].offset_ns + sim->model.link_ns : NEVER);
	tree_set(tree, SOURCE_SOON, fifo_next(&sim->soon));
	tree_set(tree, SOURCE_RING, fifo_next(&sim->ring));
	tree_set(tree, SOURCE_HOLD,
		 sim->model.hold_exponential ? heap_next(&sim->held) : fifo_next(&sim->hold));
	for (uint32_t i = 0; sim->model.retransmissions && i < TIMER_LENGTHS; i++)
		tree_set(tree, SOURCE_TIMERS + i, fifo_next(&sim->timers[i]));
}
