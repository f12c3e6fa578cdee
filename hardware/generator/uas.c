// SPDX-License-Identifier: MIT
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "uas.h"

#define SLAB_CALLS 4096

enum uas_state {
	UAS_RINGING,   /* the server has sent 180 */
	UAS_ANSWERED,  /* the server has sent 200 and waits for ACK */
	UAS_CONFIRMED, /* the server has received ACK */
	UAS_ENDED,     /* the server has received BYE, possibly before ACK */
};

struct uas_call {
	struct timer timer;
	struct uas_call *next; /* next call in the bucket, or next free call */
	uint64_t key;
	uint64_t interval_ns; /* time to the next retransmission of 200 */
	uint64_t deadline_ns; /* time at which the server stops waiting for ACK */
	struct peer peer;
	uint32_t invite_cseq;
	uint32_t bye_cseq;
	uint32_t headers_size;
	uint8_t state; /* one of enum uas_state */
	bool acknowledged;
	bool split; /* the call's messages came from several addresses */
	/* The headers Via to CSeq for answers to INVITE. NULL after ACK or BYE, or when the server stops waiting for ACK. */
	char *headers;
};

struct firing {
	struct uas *uas;
	struct outbox *outbox;
};

static struct uas_call *call_of(struct timer *timer)
{
	return (struct uas_call *)((char *)timer - offsetof(struct uas_call, timer));
}

uint64_t uas_key(const struct sip_message *m)
{
	uint64_t tag = span_hash(m->from_tag);

	return m->call_id_hash ^ (tag << 32 | tag >> 32);
}

bool uas_init(struct uas *uas, const struct uas_setup *setup, uint64_t now_ns)
{
	memset(uas, 0, sizeof(*uas));
	uas->setup = *setup;
	uas->table = calloc(setup->buckets, sizeof(*uas->table));
	wheel_init(&uas->wheel, now_ns);
	return uas->table != NULL;
}

void uas_free(struct uas *uas)
{
	for (uint32_t i = 0; uas->table && i < uas->setup.buckets; i++)
		for (struct uas_call *call = uas->table[i]; call; call = call->next)
			free(call->headers);
	for (size_t i = 0; i < uas->n_slabs; i++)
		free(uas->slabs[i]);
	free(uas->slabs);
	free(uas->table);
}

static struct uas_call **bucket_of(struct uas *uas, uint64_t key)
{
	/* use higher bits too, because calls with consecutive numbers have similar low bits */
	return &uas->table[(key ^ key >> 29) & (uas->setup.buckets - 1)];
}

static struct uas_call *find_call(struct uas *uas, uint64_t key)
{
	struct uas_call *call = *bucket_of(uas, key);

	while (call && call->key != key)
		call = call->next;
	return call;
}

static bool add_slab(struct uas *uas)
{
	void **slabs = realloc(uas->slabs, (uas->n_slabs + 1) * sizeof(*slabs));
	struct uas_call *calls;

	if (!slabs)
		return false;
	uas->slabs = slabs;
	calls = calloc(SLAB_CALLS, sizeof(*calls));
	if (!calls)
		return false;
	uas->slabs[uas->n_slabs++] = calls;
	for (size_t i = SLAB_CALLS; i-- > 0;) {
		calls[i].next = uas->spare;
		uas->spare = &calls[i];
	}
	return true;
}

static struct uas_call *new_call(struct uas *uas, uint64_t key)
{
	struct uas_call **bucket = bucket_of(uas, key);
	struct uas_call *call;

	if (uas->kept == uas->setup.calls_kept || (!uas->spare && !add_slab(uas)))
		return NULL;
	call = uas->spare;
	uas->spare = call->next;
	memset(call, 0, sizeof(*call));
	call->key = key;
	call->next = *bucket;
	*bucket = call;
	uas->kept++;
	return call;
}

static void forget_headers(struct uas_call *call)
{
	free(call->headers);
	call->headers = NULL;
}

static void drop_call(struct uas *uas, struct uas_call *call)
{
	struct uas_call **link = bucket_of(uas, call->key);

	while (*link != call)
		link = &(*link)->next;
	*link = call->next;
	wheel_disarm(&uas->wheel, &call->timer);
	forget_headers(call);
	call->next = uas->spare;
	uas->spare = call;
	uas->kept--;
}

/*
 * Write the headers that an answer copies from its request (RFC 3261 8.2.6.2). All answers of a call have the same tag.
 */
static void write_copied(struct writer *w, const struct uas *uas, const struct sip_message *m, bool routes)
{
	for (unsigned i = 0; i < m->n_via; i++) {
		write_literal(w, "Via: ");
		write_span(w, m->via[i]);
		write_literal(w, "\r\n");
	}
	for (unsigned i = 0; routes && i < m->n_record_route; i++) {
		write_literal(w, "Record-Route: ");
		write_span(w, m->record_route[i]);
		write_literal(w, "\r\n");
	}
	write_literal(w, "From: ");
	write_span(w, m->from);
	write_literal(w, "\r\nTo: ");
	write_span(w, m->to);
	if (!span_size(m->to_tag)) {
		write_literal(w, ";tag=");
		write_hex(w, uas->setup.instance, 8);
		write_hex(w, m->call_id_hash, 8);
	}
	write_literal(w, "\r\nCall-ID: ");
	write_span(w, m->call_id);
	write_literal(w, "\r\nCSeq: ");
	write_span(w, m->cseq);
	write_literal(w, "\r\n");
}

static void write_contact(struct writer *w, const struct uas *uas)
{
	write_literal(w, "Contact: <sip:callee@");
	write_span(w, uas->setup.host);
	write_literal(w, ":");
	write_number(w, uas->setup.port);
	if (uas->setup.timing.reliable)
		write_literal(w, ";transport=tcp");
	write_literal(w, ">\r\n");
}

static void send_180(const struct uas *uas, struct outbox *outbox, const struct uas_call *call, bool again)
{
	struct writer w = writer_open(outbox);

	write_literal(&w, "SIP/2.0 180 Ringing\r\n");
	write_bytes(&w, call->headers, call->headers_size);
	write_contact(&w, uas);
	write_literal(&w, "Content-Length: 0\r\n\r\n");
	writer_close(outbox, &w, &call->peer, SIP_KIND_180, again);
}

static void send_200(const struct uas *uas, struct outbox *outbox, const struct uas_call *call, bool again)
{
	struct writer w = writer_open(outbox);

	write_literal(&w, "SIP/2.0 200 OK\r\n");
	write_bytes(&w, call->headers, call->headers_size);
	write_contact(&w, uas);
	write_session(&w, "callee", uas->setup.host);
	writer_close(outbox, &w, &call->peer, SIP_KIND_200_INVITE, again);
}

/* Send an answer whose headers all come from the request. */
static void send_plain(const struct uas *uas, struct outbox *outbox, const struct sip_message *m,
		       const struct peer *to, const char *status, enum sip_kind kind, bool again)
{
	struct writer w = writer_open(outbox);

	write_literal(&w, "SIP/2.0 ");
	write_bytes(&w, status, strlen(status));
	write_literal(&w, "\r\n");
	write_copied(&w, uas, m, false);
	write_literal(&w, "Content-Length: 0\r\n\r\n");
	writer_close(outbox, &w, to, kind, again);
}

/* Arm the timer for the next 200 or for the end of waiting for ACK, whichever comes first. */
static void arm_200(struct uas *uas, struct uas_call *call, uint64_t now_ns)
{
	uint64_t next_ns = call->deadline_ns;

	if (uas->setup.timing.retransmissions && now_ns + call->interval_ns < next_ns)
		next_ns = now_ns + call->interval_ns;
	wheel_arm(&uas->wheel, &call->timer, next_ns);
}

static void answer(struct uas *uas, struct outbox *outbox, struct uas_call *call, uint64_t now_ns)
{
	call->state = UAS_ANSWERED;
	call->interval_ns = uas->setup.timing.t1_ns;
	call->deadline_ns = now_ns + 64 * uas->setup.timing.t1_ns;
	send_200(uas, outbox, call, false);
	arm_200(uas, call, now_ns);
}

static void on_timer(void *context, struct timer *timer, uint64_t now_ns)
{
	struct firing *firing = context;
	struct uas *uas = firing->uas;
	struct uas_call *call = call_of(timer);

	switch (call->state) {
	case UAS_RINGING:
		answer(uas, firing->outbox, call, now_ns);
		return;
	case UAS_ANSWERED:
		if (now_ns >= call->deadline_ns) {
			uas->counts.calls_no_ack++;
			drop_call(uas, call);
			return;
		}
		send_200(uas, firing->outbox, call, true);
		call->interval_ns *= 2;
		if (call->interval_ns > uas->setup.timing.t2_ns)
			call->interval_ns = uas->setup.timing.t2_ns;
		arm_200(uas, call, now_ns);
		return;
	default:
		/* timer J has ended, so forget the call */
		drop_call(uas, call);
		return;
	}
}

void uas_advance(struct uas *uas, struct outbox *outbox, uint64_t now_ns)
{
	struct firing firing = { uas, outbox };

	wheel_advance(&uas->wheel, now_ns, on_timer, &firing);
}

static bool same_address(const struct sockaddr_in *a, const struct sockaddr_in *b)
{
	return a->sin_port == b->sin_port && a->sin_addr.s_addr == b->sin_addr.s_addr;
}

void uas_count_peer(struct uas *uas, const struct sockaddr_in *address, uint64_t calls)
{
	unsigned i = 0;

	while (i < uas->n_peers && !same_address(&uas->peers[i].address, address))
		i++;
	if (i == UAS_PEERS) {
		i--;
	} else if (i == uas->n_peers) {
		uas->peers[i].address = *address;
		uas->n_peers++;
	}
	uas->peers[i].calls += calls;
}

static void check_whole(struct uas *uas, struct uas_call *call, const struct peer *from)
{
	if (call->split || same_address(&call->peer.address, &from->address))
		return;
	call->split = true;
	uas->counts.calls_split++;
}

static void on_new_invite(struct uas *uas, struct outbox *outbox, const struct sip_message *m,
			  const struct peer *from, uint64_t now_ns)
{
	struct outgoing scratch;
	struct writer w = { &scratch, scratch.text, scratch.text + sizeof(scratch.text), false };
	struct uas_call *call;

	write_copied(&w, uas, m, true);
	if (w.full) {
		uas->counts.unexpected[m->kind]++;
		uas->counts.too_long++;
		return;
	}
	call = new_call(uas, uas_key(m));
	if (call) {
		call->headers_size = (uint32_t)(w.at - scratch.text);
		call->headers = malloc(call->headers_size);
		if (!call->headers) {
			drop_call(uas, call);
			call = NULL;
		}
	}
	uas->counts.received[m->kind]++;
	if (!call) {
		uas->counts.calls_refused++;
		return;
	}
	memcpy(call->headers, scratch.text, call->headers_size);
	call->peer = *from;
	call->invite_cseq = m->cseq_number;
	call->state = UAS_RINGING;
	uas->counts.calls_begun++;
	uas_count_peer(uas, &from->address, 1);
	send_180(uas, outbox, call, false);
	if (uas->setup.ring_ns)
		wheel_arm(&uas->wheel, &call->timer, now_ns + uas->setup.ring_ns);
	else
		answer(uas, outbox, call, now_ns);
}

static void on_invite(struct uas *uas, struct outbox *outbox, struct uas_call *call,
		      const struct sip_message *m, const struct peer *from, uint64_t now_ns)
{
	if (!call && !span_size(m->to_tag)) {
		on_new_invite(uas, outbox, m, from, now_ns);
		return;
	}
	/* the server does not support re-INVITEs, so it counts a re-INVITE as unexpected and does not answer */
	if (!call || m->cseq_number != call->invite_cseq) {
		uas->counts.unexpected[m->kind]++;
		return;
	}
	uas->counts.received_again[m->kind]++;
	if (call->state == UAS_RINGING)
		send_180(uas, outbox, call, true);
	else if (call->state == UAS_ANSWERED)
		send_200(uas, outbox, call, true);
}

static void on_ack(struct uas *uas, struct uas_call *call, const struct sip_message *m,
		   const struct peer *from)
{
	if (!call || call->state == UAS_RINGING || m->cseq_number != call->invite_cseq) {
		uas->counts.unexpected[m->kind]++;
		return;
	}
	if (call->acknowledged) {
		uas->counts.received_again[m->kind]++;
		return;
	}
	uas->counts.received[m->kind]++;
	check_whole(uas, call, from);
	call->acknowledged = true;
	if (call->state == UAS_ANSWERED) {
		call->state = UAS_CONFIRMED;
		wheel_disarm(&uas->wheel, &call->timer);
		forget_headers(call);
	}
}

static void on_bye(struct uas *uas, struct outbox *outbox, struct uas_call *call, const struct sip_message *m,
		   const struct peer *from, uint64_t now_ns)
{
	if (!call || call->state == UAS_RINGING ||
	    (call->state == UAS_ENDED && m->cseq_number != call->bye_cseq)) {
		uas->counts.unexpected[m->kind]++;
		send_plain(uas, outbox, m, from, "481 Call/Transaction Does Not Exist", SIP_KIND_FAILURE,
			   false);
		return;
	}
	if (call->state == UAS_ENDED) {
		uas->counts.received_again[m->kind]++;
		send_plain(uas, outbox, m, from, "200 OK", SIP_KIND_200_BYE, true);
		return;
	}
	/* BYE may arrive before ACK, if the proxy sent BYE first or if ACK was lost */
	uas->counts.received[m->kind]++;
	check_whole(uas, call, from);
	uas->counts.calls_ended++;
	call->state = UAS_ENDED;
	call->bye_cseq = m->cseq_number;
	forget_headers(call);
	send_plain(uas, outbox, m, from, "200 OK", SIP_KIND_200_BYE, false);
	wheel_arm(&uas->wheel, &call->timer, now_ns + 64 * uas->setup.timing.t1_ns);
}

static void on_other(struct uas *uas, struct outbox *outbox, const struct sip_message *m,
		     const struct peer *from)
{
	static const char cancel[] = "CANCEL";
	size_t size = sizeof(cancel) - 1;
	bool is_cancel = span_size(m->cseq) >= size && memcmp(m->cseq.end - size, cancel, size) == 0;

	uas->counts.unexpected[m->kind]++;
	send_plain(uas, outbox, m, from,
		   is_cancel ? "481 Call/Transaction Does Not Exist" : "405 Method Not Allowed",
		   SIP_KIND_FAILURE, false);
}

void uas_receive(struct uas *uas, struct outbox *outbox, const struct sip_message *m, const struct peer *from,
		 uint64_t now_ns)
{
	struct uas_call *call = find_call(uas, uas_key(m));

	if (!m->is_request)
		uas->counts.unexpected[m->kind]++;
	else if (m->method == SIP_METHOD_INVITE)
		on_invite(uas, outbox, call, m, from, now_ns);
	else if (m->method == SIP_METHOD_ACK)
		on_ack(uas, call, m, from);
	else if (m->method == SIP_METHOD_BYE)
		on_bye(uas, outbox, call, m, from, now_ns);
	else
		on_other(uas, outbox, m, from);
}
