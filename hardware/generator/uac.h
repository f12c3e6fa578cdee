/* SPDX-License-Identifier: MIT */
/*
 * The client of a call with six messages: INVITE, (100, 180,) 200, ACK, hold time, BYE, 200.
 *
 * The transactions follow RFC 3261: INVITE client (17.1.1, timers A, B, D) and non-INVITE client (17.1.2, timers E, F, K).
 * Each 2xx is acknowledged, even if it is repeated (13.2.2.4), until timer K ends after the call. The dialog comes from the
 * first 2xx: the remote target from Contact, the route set from the reversed Record-Route, and the remote tag (12.1.2).
 *
 * ASSUME the measured proxy is an outbound proxy: every request goes to --remote, whatever its URI and its routes are.
 * ASSUME routers are loose (RFC 3261 16.12): the Request-URI is always the remote target.
 * ASSUME no proxy forks: a 2xx with another To tag is unexpected.
 *
 * Call-ID and branches contain the number of the call in the schedule, so the client finds the call of an answer
 * without a table. These functions make no system calls: the time is an argument, and messages go to an outbox.
 */
#ifndef SIPSCHED_UAC_H
#define SIPSCHED_UAC_H
#include "agent.h"
#include "../common/calls.h"
#include "../common/schedule.h"
#include "wheel.h"

enum uac_state {
	UAC_IDLE,
	UAC_CALLING,    /* the client has sent INVITE */
	UAC_PROCEEDING, /* the client has received a 1xx answer */
	UAC_TALKING,    /* the client has sent ACK, and sends BYE after the hold time */
	UAC_LEAVING,    /* the client has sent BYE */
	UAC_REJECTED,   /* the call failed; until timer D ends, the client acknowledges repeated answers */
	UAC_ENDED,      /* the call ended; until timer K ends, the client absorbs repeated answers */
	UAC_GONE,
};

struct dialog; /* the headers that ACK and BYE copy from INVITE's answer */

struct uac_call {
	struct timer timer;
	uint64_t interval_ns; /* time to the next retransmission */
	uint64_t deadline_ns; /* time at which timer B or F ends */
	uint64_t hold_ns;
	struct dialog *dialog;
	struct peer peer;
	uint8_t state;  /* one of enum uac_state */
	bool seen_100;  /* the client has received a provisional answer other than 180 */
	bool bye_heard; /* the client has received a provisional answer to BYE */
};

struct uac_setup {
	struct timing timing;
	struct span host; /* IP address of this agent, as text */
	uint16_t port;
	struct span remote_host;
	uint16_t remote_port;
	/* A random number in all Call-IDs of this process, so that calls of several processes differ. */
	uint32_t instance;
	unsigned thread;
	unsigned threads; /* this client makes the calls i with i % threads == thread */
};

struct uac {
	struct uac_setup setup;
	struct wheel wheel;
	struct outbox *outbox;
	struct counts counts; /* counters of received messages */
	struct uac_call *calls;
	struct call_record *records;
	uint64_t count; /* number of calls in the schedule */
	uint64_t open;  /* number of calls that have begun and have not ended */
	/* Optional function that is called when a call no longer needs its connection. */
	void (*call_over)(void *context, const struct peer *peer);
	void *context;
};

void uac_init(struct uac *uac, const struct uac_setup *setup, struct outbox *outbox, struct uac_call *calls,
	      struct call_record *records, uint64_t count, uint64_t now_ns);
/* Free the memory of all calls. Record open calls as unfinished. */
void uac_free(struct uac *uac);

/*
 * Write the INVITE of call `index` to an outbox. The caller sends the outbox at once, and sets records[index].t_invite.
 */
void uac_start(struct uac *uac, struct outbox *outbox, uint64_t index, const struct peer *peer,
	       uint64_t now_ns);
void uac_receive(struct uac *uac, const char *text, size_t size, uint64_t now_ns);
void uac_advance(struct uac *uac, uint64_t now_ns);
void uac_connection_lost(struct uac *uac, uint64_t index, uint64_t now_ns);
#endif
