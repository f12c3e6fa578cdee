// SPDX-License-Identifier: MIT
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "uac.h"

#define BRANCH_COOKIE "z9hG4bK-" /* every branch begins with these characters (RFC 3261 8.1.1.7) */
#define D_NS          (32 * NS_PER_S)
#define ROUTES_MAX    64

struct dialog {
	uint64_t to_tag_hash;
	uint32_t target_size;
	uint32_t to_size;
	uint32_t routes_size;
	char text[]; /* three texts: the remote target, the value of To, and the Route lines */
};

static struct uac_call *call_of(struct timer *timer)
{
	return (struct uac_call *)((char *)timer - offsetof(struct uac_call, timer));
}

void uac_init(struct uac *uac, const struct uac_setup *setup, struct outbox *outbox, struct uac_call *calls,
	      struct call_record *records, uint64_t count, uint64_t now_ns)
{
	memset(uac, 0, sizeof(*uac));
	uac->setup = *setup;
	uac->outbox = outbox;
	uac->calls = calls;
	uac->records = records;
	uac->count = count;
	wheel_init(&uac->wheel, now_ns);
}

void uac_free(struct uac *uac)
{
	for (uint64_t i = uac->setup.thread; i < uac->count; i += uac->setup.threads) {
		free(uac->calls[i].dialog);
		uac->calls[i].dialog = NULL;
		if (uac->calls[i].state != UAC_IDLE && uac->records[i].outcome == CALL_NOT_STARTED)
			uac->records[i].outcome = CALL_UNFINISHED;
	}
}

static uint64_t index_of(const struct uac *uac, const struct uac_call *call)
{
	return (uint64_t)(call - uac->calls);
}

static struct call_record *record_of(struct uac *uac, const struct uac_call *call)
{
	return &uac->records[index_of(uac, call)];
}

static void increment(uint16_t *count)
{
	if (*count < UINT16_MAX)
		(*count)++;
}

/* Write Via's branch parameter, whose last letter names the transaction: i: INVITE, a: ACK of a 2xx, b: BYE. */
static void write_branch(struct writer *w, const struct uac *uac, uint64_t index, char letter)
{
	char tail[] = { '-', letter };

	write_literal(w, BRANCH_COOKIE);
	write_hex(w, uac->setup.instance, 8);
	write_literal(w, "-");
	write_hex(w, index, 8);
	write_bytes(w, tail, sizeof(tail));
}

static void write_host(struct writer *w, struct span host, uint16_t port)
{
	write_span(w, host);
	write_literal(w, ":");
	write_number(w, port);
}

static void write_via(struct writer *w, const struct uac *uac, uint64_t index, char letter)
{
	if (uac->setup.timing.reliable)
		write_literal(w, " SIP/2.0\r\nVia: SIP/2.0/TCP ");
	else
		write_literal(w, " SIP/2.0\r\nVia: SIP/2.0/UDP ");
	write_host(w, uac->setup.host, uac->setup.port);
	write_literal(w, ";branch=");
	write_branch(w, uac, index, letter);
	write_literal(w, "\r\n");
}

static void write_from(struct writer *w, const struct uac *uac, uint64_t index)
{
	write_literal(w, "From: <sip:caller@");
	write_host(w, uac->setup.host, uac->setup.port);
	write_literal(w, ">;tag=");
	write_hex(w, uac->setup.instance, 8);
	write_hex(w, index, 8);
	write_literal(w, "\r\nTo: ");
}

/* Write the URI of the callee. Each call has another user, so that sipshard can spread the calls by user. */
static void write_callee(struct writer *w, const struct uac *uac, uint64_t index)
{
	write_literal(w, "sip:");
	write_hex(w, index, 6);
	write_literal(w, "@");
	write_host(w, uac->setup.remote_host, uac->setup.remote_port);
	if (uac->setup.timing.reliable)
		write_literal(w, ";transport=tcp");
}

static void write_call_id(struct writer *w, const struct uac *uac, uint64_t index)
{
	write_hex(w, index, 8);
	write_literal(w, "-");
	write_hex(w, uac->setup.instance, 8);
	write_literal(w, "@");
	write_span(w, uac->setup.host);
}

/* Write the headers from Call-ID to Max-Forwards. All requests have these headers. */
static void write_middle(struct writer *w, const struct uac *uac, uint64_t index, const char *cseq)
{
	write_literal(w, "\r\nCall-ID: ");
	write_call_id(w, uac, index);
	write_literal(w, "\r\nCSeq: ");
	write_bytes(w, cseq, strlen(cseq));
	write_literal(w, "\r\nMax-Forwards: 70\r\n");
}

static void send_invite(const struct uac *uac, struct outbox *outbox, const struct uac_call *call, bool again)
{
	uint64_t index = index_of(uac, call);
	struct writer w = writer_open(outbox);

	write_literal(&w, "INVITE ");
	write_callee(&w, uac, index);
	write_via(&w, uac, index, 'i');
	write_from(&w, uac, index);
	write_literal(&w, "<");
	write_callee(&w, uac, index);
	write_literal(&w, ">");
	write_middle(&w, uac, index, "1 INVITE");
	write_literal(&w, "Contact: <sip:caller@");
	write_host(&w, uac->setup.host, uac->setup.port);
	if (uac->setup.timing.reliable)
		write_literal(&w, ";transport=tcp");
	write_literal(&w, ">\r\n");
	write_session(&w, "caller", uac->setup.host);
	writer_close(outbox, &w, &call->peer, SIP_KIND_INVITE, again);
}

/* Send ACK for a final answer other than 2xx. This ACK belongs to INVITE's transaction (RFC 3261 17.1.1.3). */
static void send_ack_of_failure(struct uac *uac, const struct uac_call *call, struct span to, bool again)
{
	uint64_t index = index_of(uac, call);
	struct writer w = writer_open(uac->outbox);

	write_literal(&w, "ACK ");
	write_callee(&w, uac, index);
	write_via(&w, uac, index, 'i');
	write_from(&w, uac, index);
	write_span(&w, to);
	write_middle(&w, uac, index, "1 ACK");
	write_literal(&w, "Content-Length: 0\r\n\r\n");
	writer_close(uac->outbox, &w, &call->peer, SIP_KIND_ACK, again);
}

/* Send a request within the dialog of a call (RFC 3261 12.2.1.1). */
static void send_in_dialog(struct uac *uac, const struct uac_call *call, enum sip_kind kind, bool again)
{
	bool is_ack = kind == SIP_KIND_ACK;
	const struct dialog *dialog = call->dialog;
	uint64_t index = index_of(uac, call);
	struct writer w = writer_open(uac->outbox);

	if (is_ack)
		write_literal(&w, "ACK ");
	else
		write_literal(&w, "BYE ");
	write_bytes(&w, dialog->text, dialog->target_size);
	write_via(&w, uac, index, is_ack ? 'a' : 'b');
	write_bytes(&w, dialog->text + dialog->target_size + dialog->to_size, dialog->routes_size);
	write_from(&w, uac, index);
	write_bytes(&w, dialog->text + dialog->target_size, dialog->to_size);
	write_middle(&w, uac, index, is_ack ? "1 ACK" : "2 BYE");
	write_literal(&w, "Content-Length: 0\r\n\r\n");
	writer_close(uac->outbox, &w, &call->peer, kind, again);
}

static void call_gone(struct uac *uac, struct uac_call *call)
{
	wheel_disarm(&uac->wheel, &call->timer);
	free(call->dialog);
	call->dialog = NULL;
	call->state = UAC_GONE;
}

/* Record the outcome of a call. Keep the call for `linger_ns`, to acknowledge repeated answers. */
static void end_call(struct uac *uac, struct uac_call *call, enum call_outcome outcome, unsigned status,
		     uint64_t linger_ns, uint64_t now_ns)
{
	struct call_record *record = record_of(uac, call);

	record->outcome = (uint8_t)outcome;
	record->status = (uint16_t)status;
	uac->open--;
	if (linger_ns && !uac->setup.timing.reliable)
		wheel_arm(&uac->wheel, &call->timer, now_ns + linger_ns);
	else
		call_gone(uac, call);
	if (uac->call_over)
		uac->call_over(uac->context, &call->peer);
}

/* Arm the timer for the next retransmission or for the end of the transaction, whichever comes first. */
static void arm_transaction(struct uac *uac, struct uac_call *call, uint64_t now_ns)
{
	uint64_t next_ns = call->deadline_ns;

	if (uac->setup.timing.retransmissions && !uac->setup.timing.reliable &&
	    now_ns + call->interval_ns < next_ns)
		next_ns = now_ns + call->interval_ns;
	wheel_arm(&uac->wheel, &call->timer, next_ns);
}

static void begin_transaction(struct uac *uac, struct uac_call *call, uint64_t now_ns)
{
	call->interval_ns = uac->setup.timing.t1_ns;
	call->deadline_ns = now_ns + 64 * uac->setup.timing.t1_ns;
	arm_transaction(uac, call, now_ns);
}

void uac_start(struct uac *uac, struct outbox *outbox, uint64_t index, const struct peer *peer,
	       uint64_t now_ns)
{
	struct uac_call *call = &uac->calls[index];
	struct call_record *record = &uac->records[index];
	struct outgoing scratch;
	struct writer w = { &scratch, scratch.text, scratch.text + sizeof(scratch.text), false };

	write_call_id(&w, uac, index);
	record->call_id_hash = span_hash((struct span){ scratch.text, w.at });
	record->thread = (uint8_t)uac->setup.thread;
	call->state = UAC_CALLING;
	call->peer = *peer;
	uac->open++;
	send_invite(uac, outbox, call, false);
	begin_transaction(uac, call, now_ns);
}

static void send_bye(struct uac *uac, struct uac_call *call, uint64_t now_ns)
{
	call->state = UAC_LEAVING;
	record_of(uac, call)->t_bye = now_ns;
	send_in_dialog(uac, call, SIP_KIND_BYE, false);
	begin_transaction(uac, call, now_ns);
}

static void on_timer(void *context, struct timer *timer, uint64_t now_ns)
{
	struct uac *uac = context;
	struct uac_call *call = call_of(timer);
	const struct timing *timing = &uac->setup.timing;

	switch (call->state) {
	case UAC_CALLING:
		if (now_ns >= call->deadline_ns) {
			end_call(uac, call, CALL_TIMEOUT_INVITE, 0, 0, now_ns);
			return;
		}
		send_invite(uac, uac->outbox, call, true);
		increment(&record_of(uac, call)->invite_again);
		call->interval_ns *= 2;
		arm_transaction(uac, call, now_ns);
		return;
	case UAC_TALKING:
		send_bye(uac, call, now_ns);
		return;
	case UAC_LEAVING:
		if (now_ns >= call->deadline_ns) {
			end_call(uac, call, CALL_TIMEOUT_BYE, 0, 0, now_ns);
			return;
		}
		send_in_dialog(uac, call, SIP_KIND_BYE, true);
		increment(&record_of(uac, call)->bye_again);
		call->interval_ns *= 2;
		if (call->bye_heard || call->interval_ns > timing->t2_ns)
			call->interval_ns = timing->t2_ns;
		arm_transaction(uac, call, now_ns);
		return;
	case UAC_REJECTED:
	case UAC_ENDED:
		call_gone(uac, call);
		return;
	default:
		return;
	}
}

void uac_advance(struct uac *uac, uint64_t now_ns)
{
	wheel_advance(&uac->wheel, now_ns, on_timer, uac);
}

void uac_connection_lost(struct uac *uac, uint64_t index, uint64_t now_ns)
{
	struct uac_call *call = &uac->calls[index];

	if (call->state >= UAC_CALLING && call->state <= UAC_LEAVING)
		end_call(uac, call, CALL_NO_CONNECTION, 0, 0, now_ns);
}

/* Write the elements of Record-Route in reverse order as Route lines (RFC 3261 12.1.2). */
static void write_routes(struct writer *w, const struct sip_message *m)
{
	struct span routes[ROUTES_MAX];
	unsigned count = 0;

	for (unsigned i = 0; i < m->n_record_route; i++) {
		struct span list = m->record_route[i];

		while (count < ROUTES_MAX && sip_next_element(&list, &routes[count]))
			count++;
	}
	while (count-- > 0) {
		write_literal(w, "Route: ");
		write_span(w, routes[count]);
		write_literal(w, "\r\n");
	}
}

static struct dialog *make_dialog(const struct uac *uac, uint64_t index, const struct sip_message *m)
{
	struct outgoing scratch;
	struct writer w = { &scratch, scratch.text, scratch.text + sizeof(scratch.text), false };
	struct dialog sizes = { .to_tag_hash = span_hash(m->to_tag) };
	struct dialog *dialog;
	char *mark = w.at;

	if (span_size(m->contact))
		write_span(&w, m->contact);
	else
		write_callee(&w, uac, index);
	sizes.target_size = (uint32_t)(w.at - mark);
	mark = w.at;
	write_span(&w, m->to);
	sizes.to_size = (uint32_t)(w.at - mark);
	mark = w.at;
	write_routes(&w, m);
	sizes.routes_size = (uint32_t)(w.at - mark);
	if (w.full)
		return NULL;
	dialog = malloc(sizeof(*dialog) + (size_t)(w.at - scratch.text));
	if (dialog) {
		*dialog = sizes;
		memcpy(dialog->text, scratch.text, (size_t)(w.at - scratch.text));
	}
	return dialog;
}

static bool parse_hex(const char *at, int digits, uint64_t *value)
{
	*value = 0;
	for (int i = 0; i < digits; i++) {
		char c = at[i];

		if (c >= '0' && c <= '9')
			*value = *value << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			*value = *value << 4 | (uint64_t)(c - 'a' + 10);
		else
			return false;
	}
	return true;
}

/*
 * Find the call to which an answer belongs, by the branch of the answer (RFC 3261 17.1.3). Return NULL if another
 * agent made the call.
 */
static struct uac_call *find_call(struct uac *uac, const struct sip_message *m)
{
	const size_t cookie = sizeof(BRANCH_COOKIE) - 1;
	char letter = m->method == SIP_METHOD_INVITE ? 'i' : 'b';
	const char *at = m->branch.at;
	uint64_t instance, index;

	if (span_size(m->branch) != cookie + 8 + 1 + 8 + 2 || memcmp(at, BRANCH_COOKIE, cookie))
		return NULL;
	at += cookie;
	if (!parse_hex(at, 8, &instance) || at[8] != '-' || !parse_hex(at + 9, 8, &index) || at[17] != '-' ||
	    at[18] != letter)
		return NULL;
	if (instance != uac->setup.instance || index >= uac->count ||
	    index % uac->setup.threads != uac->setup.thread ||
	    uac->records[index].call_id_hash != m->call_id_hash || uac->calls[index].state == UAC_IDLE)
		return NULL;
	return &uac->calls[index];
}

static void count(struct uac *uac, const struct sip_message *m, bool again)
{
	if (again)
		uac->counts.received_again[m->kind]++;
	else
		uac->counts.received[m->kind]++;
}

static void on_provisional(struct uac *uac, struct uac_call *call, const struct sip_message *m,
			   uint64_t now_ns)
{
	struct call_record *record = record_of(uac, call);
	bool again = m->status == 180 ? record->t_ringing != 0 : call->seen_100;

	count(uac, m, again);
	/*
	 * a 180 comes after the 200 if two workers of a stateless proxy handle both at once; a stateful proxy drops
	 * this 180
	 */
	if (m->status == 180 && !again && call->state != UAC_CALLING && call->state != UAC_PROCEEDING)
		uac->counts.overtaken++;
	if (!record->t_first_response)
		record->t_first_response = now_ns;
	if (m->status != 180)
		call->seen_100 = true;
	else if (!record->t_ringing)
		record->t_ringing = now_ns;
	if (call->state == UAC_CALLING) {
		call->state = UAC_PROCEEDING;
		wheel_disarm(&uac->wheel, &call->timer);
	}
}

static void on_answer(struct uac *uac, struct uac_call *call, const struct sip_message *m, uint64_t now_ns)
{
	struct call_record *record = record_of(uac, call);

	if (call->state == UAC_CALLING || call->state == UAC_PROCEEDING) {
		call->dialog = make_dialog(uac, index_of(uac, call), m);
		if (!call->dialog) {
			uac->counts.unexpected[m->kind]++;
			return;
		}
		count(uac, m, false);
		record->t_ok_invite = now_ns;
		if (!record->t_first_response)
			record->t_first_response = now_ns;
		record->t_ack = now_ns;
		send_in_dialog(uac, call, SIP_KIND_ACK, false);
		call->state = UAC_TALKING;
		if (call->hold_ns)
			wheel_arm(&uac->wheel, &call->timer, now_ns + call->hold_ns);
		else
			send_bye(uac, call, now_ns);
		return;
	}
	if (!record->t_ok_invite || (call->dialog && call->dialog->to_tag_hash != span_hash(m->to_tag))) {
		uac->counts.unexpected[m->kind]++;
		return;
	}
	count(uac, m, true);
	increment(&record->ok_again);
	if (call->dialog)
		send_in_dialog(uac, call, SIP_KIND_ACK, true);
}

static void on_rejection(struct uac *uac, struct uac_call *call, const struct sip_message *m, uint64_t now_ns)
{
	struct call_record *record = record_of(uac, call);

	if (call->state == UAC_CALLING || call->state == UAC_PROCEEDING) {
		count(uac, m, false);
		if (!record->t_first_response)
			record->t_first_response = now_ns;
		send_ack_of_failure(uac, call, m->to, false);
		call->state = UAC_REJECTED;
		end_call(uac, call, CALL_REJECTED_INVITE, m->status, D_NS, now_ns);
	} else if (call->state == UAC_REJECTED) {
		count(uac, m, true);
		send_ack_of_failure(uac, call, m->to, true);
	} else {
		uac->counts.unexpected[m->kind]++;
	}
}

static void on_bye_response(struct uac *uac, struct uac_call *call, const struct sip_message *m,
			    uint64_t now_ns)
{
	struct call_record *record = record_of(uac, call);

	if (call->state != UAC_LEAVING) {
		if (record->t_ok_bye)
			count(uac, m, true);
		else
			uac->counts.unexpected[m->kind]++;
		return;
	}
	if (m->status < 200) {
		count(uac, m, call->bye_heard);
		call->bye_heard = true;
		return;
	}
	count(uac, m, false);
	record->t_ok_bye = now_ns;
	call->state = UAC_ENDED;
	end_call(uac, call, m->status < 300 ? CALL_COMPLETED : CALL_REJECTED_BYE, m->status,
		 uac->setup.timing.t4_ns, now_ns);
}

void uac_receive(struct uac *uac, const char *text, size_t size, uint64_t now_ns)
{
	struct sip_message m;
	struct uac_call *call;

	if (!sip_parse(text, size, &m)) {
		uac->counts.unparsable++;
		return;
	}
	call = m.is_request || (m.method != SIP_METHOD_INVITE && m.method != SIP_METHOD_BYE)
		       ? NULL
		       : find_call(uac, &m);
	if (!call)
		uac->counts.unexpected[m.kind]++;
	else if (m.method == SIP_METHOD_BYE)
		on_bye_response(uac, call, &m, now_ns);
	else if (m.status < 200)
		on_provisional(uac, call, &m, now_ns);
	else if (m.status < 300)
		on_answer(uac, call, &m, now_ns);
	else
		on_rejection(uac, call, &m, now_ns);
}
