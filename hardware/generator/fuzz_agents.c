// SPDX-License-Identifier: MIT
/*
 * A fuzz target that sends hostile messages to the parser, to the server, and to a client with calls in every state.
 *
 * The program cuts the input at bytes 0xff, which SIP does not use. The program copies each piece to the heap at its
 * exact size, passes the copy to both agents, and then lets some time pass. The program then passes the server's
 * answers to the client, and the client's answers to the server, once.
 */
#include <stdlib.h>
#include <string.h>
#include "../common/schedule.h"
#include "uac.h"
#include "uas.h"

#define CALLS      8
#define SEPARATOR  0xff
#define PIECES_MAX 64

struct fuzz {
	struct uac uac;
	struct uas uas;
	struct outbox from_uac;
	struct outbox from_uas;
	struct counts sent;
	struct uac_call calls[CALLS];
	struct call_record records[CALLS];
	uint64_t now_ns;
	bool crossing; /* true while each agent's new messages go to the other agent */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fuzz fuzz;

static void must(bool condition)
{
	if (!condition)
		abort();
}

static bool inside(struct span s, const char *text, size_t size)
{
	return span_size(s) == 0 || (s.at >= text && s.end >= s.at && s.end <= text + size);
}

static void check_spans(const struct sip_message *m, const char *text, size_t size)
{
	must(inside(m->call_id, text, size) && inside(m->from, text, size) && inside(m->to, text, size));
	must(inside(m->from_tag, text, size) && inside(m->to_tag, text, size) && inside(m->body, text, size));
	must(inside(m->contact, text, size) && inside(m->branch, text, size) && inside(m->cseq, text, size));
	must(m->n_via >= 1 && m->n_via <= SIP_LINES_MAX && m->n_record_route <= SIP_LINES_MAX);
	must(m->kind < SIP_KINDS);
}

static void to_server(const char *text, size_t size)
{
	const struct peer from = { .connection = NO_CONNECTION };
	struct sip_message m;

	if (!sip_parse(text, size, &m))
		return;
	check_spans(&m, text, size);
	uas_receive(&fuzz.uas, &fuzz.from_uas, &m, &from, fuzz.now_ns);
}

/* Pass an agent's messages to the other agent. The messages are copied because the other agent may write to the outbox. */
static void flush(struct outbox *outbox, unsigned used)
{
	bool cross = fuzz.crossing;

	outbox->used = 0;
	for (unsigned i = 0; cross && i < used; i++) {
		size_t size = outbox->messages[i].size;
		char *copy = malloc(size);

		must(copy && size > 0 && size <= OUTBOX_BYTES);
		memcpy(copy, outbox->messages[i].text, size);
		fuzz.crossing = false;
		if (outbox == &fuzz.from_uac)
			to_server(copy, size);
		else
			uac_receive(&fuzz.uac, copy, size, fuzz.now_ns);
		fuzz.crossing = true;
		free(copy);
	}
}

static void pass_time(uint64_t ns)
{
	fuzz.now_ns += ns;
	uac_advance(&fuzz.uac, fuzz.now_ns);
	uas_advance(&fuzz.uas, &fuzz.from_uas, fuzz.now_ns);
	fuzz.crossing = true;
	flush(&fuzz.from_uac, fuzz.from_uac.used);
	flush(&fuzz.from_uas, fuzz.from_uas.used);
	fuzz.crossing = false;
}

static void feed(const uint8_t *bytes, size_t size)
{
	char *text = malloc(size ? size : 1);

	must(text != NULL);
	memcpy(text, bytes, size);
	to_server(text, size);
	uac_receive(&fuzz.uac, text, size, fuzz.now_ns);
	free(text);
	pass_time((uint64_t)size * NS_PER_MS / 10);
}

static void begin(void)
{
	static const char host[] = "10.0.0.1";
	/* timers are 100 times shorter than in RFC 3261, because each input byte advances time by only 0.1 ms */
	const struct timing timing = { 5 * NS_PER_MS, 40 * NS_PER_MS, 50 * NS_PER_MS, true, false };
	const struct span name = { host, host + strlen(host) };
	const struct peer peer = { .connection = NO_CONNECTION };
	/*
	 * The first inputs of the fuzzer are the messages that `test_sipload --corpus` writes. Use the same Call-IDs
	 * and tags here, so that these messages belong to calls of this client.
	 */
	struct uac_setup uac = { .timing = timing,
				 .host = name,
				 .port = 5060,
				 .remote_host = name,
				 .remote_port = 5070,
				 .instance = 0x5eed,
				 .threads = 1 };
	struct uas_setup uas = { .timing = timing,
				 .host = name,
				 .port = 5070,
				 .instance = 0xbeef,
				 .buckets = 4,
				 .calls_kept = 16 };

	/* clear only the calls and records, because the outboxes are large and need no clearing */
	memset(fuzz.calls, 0, sizeof(fuzz.calls));
	memset(fuzz.records, 0, sizeof(fuzz.records));
	fuzz.from_uac.used = fuzz.from_uas.used = 0;
	fuzz.crossing = false;
	fuzz.now_ns = NS_PER_S;
	fuzz.from_uac.flush = fuzz.from_uas.flush = flush;
	fuzz.from_uac.counts = fuzz.from_uas.counts = &fuzz.sent;
	uac_init(&fuzz.uac, &uac, &fuzz.from_uac, fuzz.calls, fuzz.records, CALLS, fuzz.now_ns);
	must(uas_init(&fuzz.uas, &uas, fuzz.now_ns));
	for (uint64_t i = 0; i < CALLS; i++) {
		fuzz.calls[i].hold_ns = i % 2 ? 0 : 10 * NS_PER_MS;
		uac_start(&fuzz.uac, &fuzz.from_uac, i, &peer, fuzz.now_ns);
	}
	/* pass half of the INVITEs to the server, so that the other calls have no answer when the input begins */
	fuzz.from_uac.used = CALLS / 2;
	pass_time(NS_PER_MS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	begin();
	for (int pieces = 0; pieces < PIECES_MAX; pieces++) {
		const uint8_t *end = size ? memchr(data, SEPARATOR, size) : NULL;
		size_t piece = end ? (size_t)(end - data) : size;

		feed(data, piece);
		if (!end)
			break;
		data += piece + 1;
		size -= piece + 1;
	}
	pass_time(NS_PER_S);
	uac_free(&fuzz.uac);
	uas_free(&fuzz.uas);
	return 0;
}
