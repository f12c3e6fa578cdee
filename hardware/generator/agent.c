// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>
#include "agent.h"

struct writer writer_open(struct outbox *outbox)
{
	struct outgoing *message;

	if (outbox->used == OUTBOX_MESSAGES)
		outbox->flush(outbox, outbox_waiting(outbox));
	message = &outbox->messages[outbox->used];
	return (struct writer){ message, message->text, message->text + OUTBOX_BYTES, false };
}

void write_bytes(struct writer *w, const char *bytes, size_t size)
{
	if (size > (size_t)(w->end - w->at)) {
		w->full = true;
		return;
	}
	memcpy(w->at, bytes, size);
	w->at += size;
}

void write_hex(struct writer *w, uint64_t value, int digits)
{
	static const char digit[] = "0123456789abcdef";
	char text[16];

	for (int i = digits - 1; i >= 0; i--) {
		text[i] = digit[value & 15];
		value >>= 4;
	}
	write_bytes(w, text, (size_t)digits);
}

void write_number(struct writer *w, uint64_t value)
{
	char text[20];
	size_t first = sizeof(text);

	do {
		text[--first] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	write_bytes(w, text + first, sizeof(text) - first);
}

void writer_close(struct outbox *outbox, struct writer *w, const struct peer *to, enum sip_kind kind,
		  bool again)
{
	if (w->full) {
		outbox->counts->too_long++;
		return;
	}
	w->message->to = *to;
	w->message->size = (size_t)(w->at - w->message->text);
	w->message->kind = kind;
	w->message->again = again;
	outbox->used++;
}

void write_session(struct writer *w, const char *user, struct span host)
{
	static const char connection[] = "\r\ns=-\r\nc=IN IP4 ";
	static const char media[] = "\r\nt=0 0\r\nm=audio 6000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";
	static const char owner[] = " 53655765 2353687637 IN IP4 ";
	size_t size = strlen("v=0\r\no=") + strlen(user) + strlen(owner) + strlen(connection) +
		      strlen(media) + 2 * span_size(host);

	write_literal(w, "Content-Type: application/sdp\r\nContent-Length: ");
	write_number(w, size);
	write_literal(w, "\r\n\r\nv=0\r\no=");
	write_bytes(w, user, strlen(user));
	write_literal(w, owner);
	write_span(w, host);
	write_literal(w, connection);
	write_span(w, host);
	write_literal(w, media);
}

void counts_add(struct counts *sum, const struct counts *one)
{
	uint64_t *to = (uint64_t *)sum;
	const uint64_t *from = (const uint64_t *)one;

	for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++)
		to[i] += from[i];
}
