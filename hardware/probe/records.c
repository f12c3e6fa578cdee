// SPDX-License-Identifier: MIT
#include "records.h"

#define ASSERT_SAME(probe, trace) \
	_Static_assert((int)(probe) == (int)(trace), #probe " and " #trace " differ")
ASSERT_SAME(PROBE_EVENT_MESSAGE, TRACE_EVENT_MESSAGE);
ASSERT_SAME(PROBE_EVENT_DROP, TRACE_EVENT_DROP);
ASSERT_SAME(PROBE_FLAG_SOCKQ_BOUND, TRACE_FLAG_SOCKQ_BOUND);
ASSERT_SAME(PROBE_FLAG_DUPLICATE, TRACE_FLAG_DUPLICATE);
ASSERT_SAME(PROBE_FLAG_NO_STACK, TRACE_FLAG_NO_STACK);
ASSERT_SAME(PROBE_FLAG_MORE_SENDS, TRACE_FLAG_MORE_SENDS);
ASSERT_SAME(PROBE_FLAG_UNMATCHED, TRACE_FLAG_UNMATCHED);

static uint16_t saturate_u16(uint64_t value)
{
	return value > UINT16_MAX ? UINT16_MAX : (uint16_t)value;
}

static uint32_t saturate_u32(uint64_t value)
{
	return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

/* Return the first sent datagram with the same method or status as the received message, or NULL. */
static const struct probe_send *forwarded(const struct probe_message *message)
{
	uint32_t kept = message->n_send < PROBE_SENDS ? message->n_send : PROBE_SENDS;

	for (uint32_t i = 0; i < kept; i++) {
		if (sip_same_start(message->payload, message->snippet, message->send[i].head,
				   PROBE_HEAD_BYTES))
			return &message->send[i];
	}
	return NULL;
}

bool is_in_run(const struct records *records, uint64_t t_ns)
{
	return t_ns >= records->t_fresh_ns && t_ns <= records->t_end_ns;
}

static void classify_record(struct records *records, struct trace_record *record, const char *payload,
			    uint32_t snippet, uint32_t length)
{
	struct sip_class class = sip_classify(payload, snippet, records->key);

	record->kind = class.kind;
	record->call_id_hash = class.call_id_hash;
	record->cseq = class.cseq;
	record->length = saturate_u16(length);
	if (!class.complete && snippet < length)
		records->unclassified++;
}

void keep_record(struct records *records, const struct trace_record *record)
{
	/* A message without a Call-ID has the hash 0, so all such messages pass the selection by `one_in`. */
	if (records->one_in > 1 && record->event == TRACE_EVENT_MESSAGE &&
	    record->call_id_hash % records->one_in != 0)
		records->left_out++;
	else
		append_record(&records->trace, record);
}

void record_message(struct records *records, const struct probe_message *message)
{
	const struct probe_send *same = forwarded(message);
	/*
	 * The sent datagram from which the record takes t_sip_out and t_dep. If no sent datagram is the forwarded
	 * message, `watch` uses the first sent datagram, such as the proxy's own answer to REGISTER.
	 */
	const struct probe_send *send = same || !records->key || !message->n_send ? same : &message->send[0];
	struct trace_record record = {
		.t_arr = message->t_arr,
		.t_stack = message->t_stack,
		.t_sockq = message->t_sockq,
		.t_sip_in = message->t_sip_in,
		.tid = message->tid,
		.rmem = message->rmem,
		.in_cost_ns = saturate_u16(message->in_cost_ns),
		.cpu = saturate_u16(message->cpu),
		.flags = (uint16_t)message->flags,
		.event = TRACE_EVENT_MESSAGE,
		.n_send = message->n_send > UINT8_MAX ? UINT8_MAX : (uint8_t)message->n_send,
	};

	if (!is_in_run(records, message->t_sip_in))
		return;
	if (send) {
		record.t_sip_out = send->t_sip_out;
		record.t_dep = send->t_dep;
		record.off_cpu_ns = saturate_u32(send->off_cpu_ns);
		record.switches = saturate_u16(send->switches);
		record.out_cost_ns = saturate_u16(send->out_cost_ns);
		if (!send->t_dep)
			record.flags |= TRACE_FLAG_NO_DEP;
		if (!same)
			record.flags |= TRACE_FLAG_ANSWERED;
	} else {
		record.flags |= TRACE_FLAG_NO_SEND;
	}
	classify_record(records, &record, message->payload, message->snippet, message->length);
	keep_record(records, &record);
	if (message->slot < PROBE_WORKERS)
		records->messages[message->slot]++;
}

static void record_drop(struct records *records, const struct probe_drop *drop)
{
	struct trace_record record = {
		.t_arr = drop->t_arr,
		.t_stack = drop->t_refused,
		.rmem = drop->rmem,
		.cpu = saturate_u16(drop->cpu),
		.event = TRACE_EVENT_DROP,
		.drop_reason = (uint8_t)drop->reason,
	};

	if (!is_in_run(records, drop->t_refused))
		return;
	classify_record(records, &record, drop->payload, drop->snippet, drop->length);
	append_record(&records->trace, &record);
}

int on_ring_record(void *context, void *data, size_t size)
{
	const uint32_t *event = data;

	(void)size;
	if (*event == PROBE_EVENT_DROP)
		record_drop(context, data);
	else
		record_message(context, data);
	return 0;
}
