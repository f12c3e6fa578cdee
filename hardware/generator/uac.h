/* SPDX-License-Identifier: MIT */
/*
 * The client's side of the six-message call: INVITE, (100, 180,) 200, ACK, hold, BYE, 200.
 *
 * Transactions are those of RFC 3261: INVITE client (17.1.1: timers A, B, D), non-INVITE client (17.1.2: E, F,
 * K). The core acknowledges each 2xx, also one seen again (13.2.2.4), as long as the call is remembered: K
 * after its end. The dialog is built from the first 2xx: remote target from Contact, route set from
 * Record-Route reversed, remote tag (12.1.2).
 *
 * ASSUME the SPS is an outbound proxy: every request goes to --remote, whatever its URI and its routes say.
 * ASSUME routers are loose (RFC 3261 16.12): the remote target always is the Request-URI.
 * ASSUME nobody forks: a 2xx with another To tag is unexpected.
 *
 * A call's number in the schedule stands in its Call-ID and its branches, so no table is searched.
 * Nothing here makes a system call: time comes in as an argument, messages go out through an outbox.
 */
#ifndef SIPSCHED_UAC_H
#define SIPSCHED_UAC_H
#include "agent.h"
#include "calls.h"
#include "schedule.h"
#include "wheel.h"

enum uac_state {
	UAC_IDLE,
	UAC_CALLING,    /* INVITE is out */
	UAC_PROCEEDING, /* 1xx came */
	UAC_TALKING,    /* ACK is out, BYE waits for the hold time */
	UAC_LEAVING,    /* BYE is out */
	UAC_REJECTED,   /* stays for D, to acknowledge again */
	UAC_ENDED,      /* stays for K, to absorb and acknowledge again */
	UAC_GONE,
};

struct dialog; /* what ACK and BYE repeat */

struct uac_call {
	struct timer timer;
	uint64_t interval_ns; /* to the next retransmission */
	uint64_t deadline_ns; /* of timer B or F */
	uint64_t hold_ns;
	struct dialog *dialog;
	struct peer peer;
	uint8_t state;  /* enum uac_state */
	bool seen_100;  /* or another provisional answer than 180 */
	bool bye_heard; /* a provisional answer to BYE */
};

struct uac_setup {
	struct timing timing;
	struct span host; /* of this agent, as text */
	uint16_t port;
	struct span remote_host;
	uint16_t remote_port;
	uint32_t instance; /* tells the calls of one process from those of another */
	unsigned thread;
	unsigned threads; /* calls i with i % threads == thread belong to this agent */
};

struct uac {
	struct uac_setup setup;
	struct wheel wheel;
	struct outbox *outbox;
	struct counts counts; /* of what it receives */
	struct uac_call *calls;
	struct call_record *records;
	uint64_t count; /* of all calls */
	uint64_t open;  /* calls begun and not ended */
	void (*call_over)(void *context,
			  const struct peer *peer); /* optional: the call's connection is free */
	void *context;
};

void uac_init(struct uac *uac, const struct uac_setup *setup, struct outbox *outbox, struct uac_call *calls,
	      struct call_record *records, uint64_t count, uint64_t now_ns);
/* Frees what the calls hold; what is open is marked as unfinished. */
void uac_free(struct uac *uac);

/* Write the INVITE of call `index` to an outbox that is sent at once; records[index].t_invite is the caller's to set when it goes out. */
void uac_start(struct uac *uac, struct outbox *outbox, uint64_t index, const struct peer *peer,
	       uint64_t now_ns);
void uac_receive(struct uac *uac, const char *text, size_t size, uint64_t now_ns);
void uac_advance(struct uac *uac, uint64_t now_ns);
void uac_connection_lost(struct uac *uac, uint64_t index, uint64_t now_ns);
#endif
