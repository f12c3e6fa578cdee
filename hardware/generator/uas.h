/* SPDX-License-Identifier: MIT */
/*
 * The server of a call with six messages: 180, ring time, 200 until ACK (RFC 3261 13.3.1.4), and 200 for BYE.
 *
 * The server finds a call by Call-ID, From tag and CSeq number, and not by branch. A stateless Kamailio gives all branches
 * the same name, so branches do not distinguish transactions. (RFC 3261 17.2.3 has the same rule for RFC 2543 clients.)
 * The server answers a repeated INVITE with 180 or 200 until ACK comes. After ACK, the server does not answer a
 * repeated INVITE (RFC 6026). The server answers a repeated BYE with 200 for timer J (64 T1, also over TCP). Timers G
 * and H belong to final answers that this server never sends. The server answers other requests with 405, and BYE and
 * CANCEL of unknown calls with 481. These requests count as unexpected.
 *
 * Answers always go to the sender of the request (RFC 3581 requires it only if the client asks for it). Over TCP,
 * answers use the request's connection. The server keeps about 110 bytes per call, and the headers of its answers until
 * ACK.
 */
#ifndef SIPSCHED_UAS_H
#define SIPSCHED_UAS_H
#include "agent.h"
#include "wheel.h"

struct uas_setup {
	struct timing timing;
	uint64_t ring_ns;
	struct span host; /* IP address of this agent, as text */
	uint16_t port;
	uint32_t instance;   /* a random number in the tags of this process */
	uint32_t buckets;    /* size of the table of calls, a power of 2 */
	uint64_t calls_kept; /* while this many calls are open, a new INVITE gets no answer */
};

#define UAS_PEERS 256

struct uas_call;

/* One address and port from which calls come. */
struct uas_peer {
	struct sockaddr_in address;
	uint64_t calls; /* number of calls that this sender began */
};

struct uas {
	struct uas_setup setup;
	struct wheel wheel;
	struct counts counts; /* counters of received messages */
	struct uas_call **table;
	struct uas_call *spare;
	uint64_t kept;
	void **slabs; /* blocks of memory for calls, freed at the end */
	size_t n_slabs;
	/*
	 * The number of calls per address. If no entry is free, the last entry also counts the calls from further
	 * addresses.
	 */
	struct uas_peer peers[UAS_PEERS];
	unsigned n_peers;
};

/* Prepare a server. Return false if memory runs out. */
bool uas_init(struct uas *uas, const struct uas_setup *setup, uint64_t now_ns);
void uas_free(struct uas *uas);
void uas_receive(struct uas *uas, struct outbox *outbox, const struct sip_message *message,
		 const struct peer *from, uint64_t now_ns);
void uas_advance(struct uas *uas, struct outbox *outbox, uint64_t now_ns);

/* Add `calls` to the number of calls from an address. */
void uas_count_peer(struct uas *uas, const struct sockaddr_in *address, uint64_t calls);

/* Return the key of a call, which is the same for all messages of the call. */
uint64_t uas_key(const struct sip_message *message);
#endif
