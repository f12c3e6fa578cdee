/* SPDX-License-Identifier: MIT */
/*
 * The wire of one thread: a UDP socket, or TCP connections and perhaps the socket they are accepted on.
 *
 * Sends what its outbox holds in one go, receives in batches, and counts what the kernel refuses.
 * Over TCP a message that meets a full send buffer waits here, which is counted; it is sent when the kernel has taken it
 * whole, and not sent if its connection ends before.
 */
#ifndef SIPSCHED_LINK_H
#define SIPSCHED_LINK_H
#include "agent.h"

typedef void link_received(void *context, const char *text, size_t size, const struct peer *from,
			   uint64_t now_ns);
/* TCP: a connection of the client's that `owner` names could not be opened, broke, or was closed by the server. */
typedef void link_lost(void *context, uint64_t owner, uint64_t now_ns);

struct link;

uint64_t clock_ns(void);

/*
 * UDP sockets and TCP listeners may be shared by links: they are opened apart. -1: see errno.
 * A UDP socket with a remote address talks to that one only. Buffer sizes are asked for by force (root) first.
 */
int open_udp(const struct sockaddr_in *local, const struct sockaddr_in *remote, int buffer_bytes);

/*
 * Read and forget what came after the end, then close: a datagram that is still queued when its socket closes is
 * in none of the kernel's counters, and a ledger of them would miss it.
 */
void close_udp(int fd);
int open_tcp_listener(const struct sockaddr_in *local, int buffer_bytes);

/* NULL: not enough memory or descriptors. `socket` is -1 for a TCP client. */
struct link *link_open(int socket, bool reliable, bool connected, int buffer_bytes);
void link_free(struct link *link);
void link_set_callbacks(struct link *link, link_received *received, link_lost *lost, void *context);

struct outbox *link_outbox(struct link *link);
/* Another one, for what cannot wait until the first is empty. */
struct outbox *link_urgent(struct link *link);
struct counts *link_counts(struct link *link);

/* TCP: start a connection, without waiting for it. False: it cannot even be started. */
bool link_connect(struct link *link, const struct sockaddr_in *local, const struct sockaddr_in *remote,
		  uint64_t owner, struct peer *peer);
bool link_is_open(const struct link *link, const struct peer *peer);
/* Closes after the outbox has been flushed and the connection's buffer is empty. */
void link_close(struct link *link, const struct peer *peer);

/* TCP: close all connections; what they have not sent is counted. */
void link_close_all(struct link *link);

/* Send all that the outbox holds; its first message (UDP only, else all); all that is urgent. */
void link_flush(struct link *link);
void link_flush_one(struct link *link);
void link_flush_urgent(struct link *link);

/* Receive what is there; if there is nothing, wait for it, at most `wait_ns`. False: nothing came. */
bool link_poll(struct link *link, uint64_t wait_ns);
#endif
