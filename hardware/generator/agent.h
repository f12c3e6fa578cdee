/* SPDX-License-Identifier: MIT */
/* Timers, counters and functions that write messages, for both the client and the server. */
#ifndef SIPSCHED_AGENT_H
#define SIPSCHED_AGENT_H
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../common/clock.h"
#include "sip.h"

#define OUTBOX_MESSAGES 64
#define OUTBOX_BYTES    8192 /* longest message that an agent sends */
#define ERRNO_MAX       134
#define NO_CONNECTION   UINT32_MAX

/* The timer values of RFC 3261, table 4. */
struct timing {
	uint64_t t1_ns;
	uint64_t t2_ns;
	uint64_t t4_ns;
	/* True: the agent retransmits requests by timers A and E, and 2xx answers (RFC 3261 13.3.1.4). */
	bool retransmissions;
	bool reliable; /* for TCP: timers A and E are off, and timers D and K are 0 */
};

/* The address or connection from which a message came, or to which a message is sent. */
struct peer {
	struct sockaddr_in address; /* IP address and port of the other side; unused by a TCP client */
	uint32_t connection;        /* number of the TCP connection; NO_CONNECTION for UDP */
	/* How often this connection number was reused, which distinguishes new connections from old ones. */
	uint32_t generation;
};

/* The counters of one thread. The report contains the sums over all threads. */
struct counts {
	uint64_t sent[SIP_KINDS];       /* messages that the kernel accepted completely at their first send */
	uint64_t sent_again[SIP_KINDS]; /* number of retransmissions */
	uint64_t not_sent[SIP_KINDS];   /* messages that the kernel refused or whose connection was lost */
	uint64_t received[SIP_KINDS];   /* messages received for the first time */
	uint64_t received_again[SIP_KINDS]; /* received retransmissions */
	/* messages that belong to no call, or that the call's state does not allow */
	uint64_t unexpected[SIP_KINDS];
	uint64_t unparsable;        /* received texts that are not complete SIP messages */
	uint64_t overtaken;         /* client: 180 answers after the final answer; `received` includes them */
	uint64_t too_long;          /* answers that were not sent because they exceeded OUTBOX_BYTES */
	uint64_t calls_refused;     /* server: calls refused because too many calls were open */
	uint64_t calls_begun;       /* server: calls whose INVITE arrived */
	uint64_t calls_ended;       /* server: calls whose BYE the server answered */
	uint64_t calls_no_ack;      /* server: calls for which no ACK came within 64 T1 */
	uint64_t calls_split;       /* server: calls whose ACK or BYE came from another address than INVITE */
	uint64_t connections;       /* TCP: connections that the agent opened or accepted */
	uint64_t connections_again; /* TCP client: connections that replaced a lost connection */
	/* TCP: connections that failed to open, that broke, or that the server closed. */
	uint64_t connections_lost;
	uint64_t connections_cut;           /* TCP: connections that ended in the middle of a message */
	uint64_t blocked;                   /* TCP: number of times that a send buffer was full */
	uint64_t blocked_ns;                /* TCP: total time during which send buffers were full */
	uint64_t send_errors[ERRNO_MAX];    /* number of send errors per errno */
	uint64_t receive_errors[ERRNO_MAX]; /* number of receive errors per errno, including ICMP errors */
};

struct outgoing {
	struct peer to;
	size_t size;
	enum sip_kind kind;
	bool again;
	char text[OUTBOX_BYTES];
};

/* Messages that an agent collects, to send all of them together. */
struct outbox {
	/*
	 * Send and count the first `count` messages in the outbox. If the outbox is then empty, set first = used = 0.
	 */
	void (*flush)(struct outbox *outbox, unsigned count);
	void *owner; /* the argument that `flush` receives */
	struct counts *counts;
	unsigned first; /* index of the first unsent message */
	unsigned used;
	struct outgoing messages[OUTBOX_MESSAGES];
};

/* The state of writing one message at the end of an outbox. */
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
/* Add the message to the outbox. If the message is too long, drop and count it. */
void writer_close(struct outbox *outbox, struct writer *w, const struct peer *to, enum sip_kind kind,
		  bool again);

/* Write a string literal. The compiler computes its length. */
#define write_literal(w, literal) write_bytes(w, literal, sizeof(literal) - 1)

static inline void write_span(struct writer *w, struct span s)
{
	write_bytes(w, s.at, span_size(s));
}

/*
 * Write the last headers and a session description (RFC 4566). The description is as long as the description that SIPp
 * sends.
 */
void write_session(struct writer *w, const char *user, struct span host);

void counts_add(struct counts *sum, const struct counts *one);
#endif
