/* SPDX-License-Identifier: MIT */
/* The common part of client and server: timers, counters, and the writing of messages. */
#ifndef SIPSCHED_AGENT_H
#define SIPSCHED_AGENT_H
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../common/clock.h"
#include "sip.h"

#define OUTBOX_MESSAGES 64
#define OUTBOX_BYTES    8192 /* bytes of the longest message that an agent sends */
#define ERRNO_MAX       134
#define NO_CONNECTION   UINT32_MAX

/* The timers of RFC 3261, table 4. */
struct timing {
	uint64_t t1_ns;
	uint64_t t2_ns;
	uint64_t t4_ns;
	bool retransmissions; /* whether messages are retransmitted (timers A and E, and the 2xx of 13.3.1.4) */
	bool reliable;        /* TCP: timers A and E are not used, D and K are zero */
};

/* The other end of a message: its sender or its receiver. */
struct peer {
	struct sockaddr_in address; /* used for UDP, and for the clients of a TCP server */
	uint32_t connection;        /* for TCP; NO_CONNECTION for UDP */
	uint32_t generation;        /* counts the uses of this connection number */
};

/* Counters of one thread. The report has the sums over all threads. */
struct counts {
	uint64_t sent[SIP_KINDS];           /* sent for the first time, and accepted whole by the kernel */
	uint64_t sent_again[SIP_KINDS];     /* retransmissions */
	uint64_t not_sent[SIP_KINDS];       /* refused by the kernel, or the connection was gone */
	uint64_t received[SIP_KINDS];       /* received for the first time */
	uint64_t received_again[SIP_KINDS]; /* retransmissions */
	uint64_t unexpected[SIP_KINDS];     /* belongs to no call, or does not fit the state of its call */
	uint64_t unparsable;                /* not a whole SIP message */
	uint64_t overtaken;              /* client: 180 received after the final answer; also in `received` */
	uint64_t too_long;               /* answers that were longer than OUTBOX_BYTES and not sent */
	uint64_t calls_refused;          /* server: calls refused because too many calls existed */
	uint64_t calls_begun;            /* server: calls whose INVITE was received */
	uint64_t calls_ended;            /* server: calls whose BYE was answered */
	uint64_t calls_no_ack;           /* server: calls without ACK for 64 T1 */
	uint64_t calls_split;            /* server: ACK or BYE came from another address than INVITE */
	uint64_t connections;            /* TCP: connections that were opened or accepted */
	uint64_t connections_again;      /* TCP, client: connections that replaced a lost connection */
	uint64_t connections_lost;       /* TCP: could not be opened, broke, or were closed by the server */
	uint64_t connections_cut;        /* TCP: ended within a message */
	uint64_t blocked;                /* TCP: number of times that a send buffer was full */
	uint64_t blocked_ns;             /* TCP: the total time that messages waited for a full send buffer */
	uint64_t send_errors[ERRNO_MAX]; /* by errno */
	uint64_t receive_errors[ERRNO_MAX]; /* by errno; ICMP errors are included */
};

struct outgoing {
	struct peer to;
	size_t size;
	enum sip_kind kind;
	bool again;
	char text[OUTBOX_BYTES];
};

/* Messages that are sent together. */
struct outbox {
	/* Send and count the first `count` waiting messages. If no message is left, set first = used = 0. */
	void (*flush)(struct outbox *outbox, unsigned count);
	void *owner; /* the argument of `flush` */
	struct counts *counts;
	unsigned first; /* index of the first waiting message */
	unsigned used;
	struct outgoing messages[OUTBOX_MESSAGES];
};

/* Writes one message at the end of an outbox. */
struct writer {
	struct outgoing *message;
	char *at;
	char *end;
	bool full;
};

static inline unsigned outbox_waiting(const struct outbox *outbox)
{
	return outbox->used - outbox->first;
}

struct writer writer_open(struct outbox *outbox);
void write_bytes(struct writer *w, const char *bytes, size_t size);
void write_hex(struct writer *w, uint64_t value, int digits);
void write_number(struct writer *w, uint64_t value);
/* Add the message to the outbox. A message that is too long is dropped and counted. */
void writer_close(struct outbox *outbox, struct writer *w, const struct peer *to, enum sip_kind kind,
		  bool again);

/* Write a string literal. */
#define write_literal(w, literal) write_bytes(w, literal, sizeof(literal) - 1)

static inline void write_span(struct writer *w, struct span s)
{
	write_bytes(w, s.at, span_size(s));
}

/* Write the last headers and a session description (RFC 4566) of the size that SIPp sends. */
void write_session(struct writer *w, const char *user, struct span host);

void counts_add(struct counts *sum, const struct counts *one);
#endif
