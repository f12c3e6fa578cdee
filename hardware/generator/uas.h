/* SPDX-License-Identifier: MIT */
/*
 * The server's side of the six-message call: 180, ring time, 200 until ACK (RFC 3261 13.3.1.4), 200 to BYE.
 *
 * A call is found by Call-ID, From tag and the CSeq number, whatever the branch: a stateless Kamailio gives all
 * its branches the same name, so branches cannot tell transactions apart (17.2.3 has the same rule for RFC
 * 2543 clients). A request seen again is answered again: INVITE with 180 or 200 until ACK came, then with
 * nothing (RFC 6026); BYE with its 200 as long as the call is remembered (timer J, 64 T1, on TCP too).
 * Timers G and H belong to final answers other than 2xx, which this server never gives to INVITE.
 * Other requests are answered 405, BYE and CANCEL of unknown calls 481; they count as unexpected.
 *
 * Answers go to where the request came from, over its connection on TCP (RFC 3581 without asking).
 * The UAS keeps about 110 bytes a call, and until ACK the headers it must copy.
 */
#ifndef SIPSCHED_UAS_H
#define SIPSCHED_UAS_H
#include "agent.h"
#include "wheel.h"

struct uas_setup {
	struct timing timing;
	uint64_t ring_ns;
	struct span host; /* of this agent, as text */
	uint16_t port;
	uint32_t instance;   /* makes its tags */
	uint32_t buckets;    /* of the table of calls; a power of 2 */
	uint64_t calls_kept; /* a new call past this many is refused in silence */
};

#define UAS_PEERS 256

struct uas_call;

/* Who calls: an address and a port. */
struct uas_peer {
	struct sockaddr_in address;
	uint64_t calls; /* begun */
};

struct uas {
	struct uas_setup setup;
	struct wheel wheel;
	struct counts counts; /* of what it receives */
	struct uas_call **table;
	struct uas_call *spare;
	uint64_t kept;
	void **slabs; /* memory of the calls, until the end */
	size_t n_slabs;
	struct uas_peer peers[UAS_PEERS]; /* the last stands for all that come after it */
	unsigned n_peers;
};

/* False: not enough memory. */
bool uas_init(struct uas *uas, const struct uas_setup *setup, uint64_t now_ns);
void uas_free(struct uas *uas);
void uas_receive(struct uas *uas, struct outbox *outbox, const struct sip_message *message,
		 const struct peer *from, uint64_t now_ns);
void uas_advance(struct uas *uas, struct outbox *outbox, uint64_t now_ns);

/* Add calls that an address began. */
void uas_count_peer(struct uas *uas, const struct sockaddr_in *address, uint64_t calls);

/* What a message's call is found by: the same for all messages of a call. */
uint64_t uas_key(const struct sip_message *message);
#endif
