/* SPDX-License-Identifier: MIT */
/*
 * The sockets of one thread: a UDP socket, or TCP connections and possibly their listener.
 *
 * A link sends all messages of its outbox together, receives in batches, and counts the messages that the kernel
 * refuses. Over TCP, a message waits in the link while the send buffer is full, and the link counts the waiting time.
 * A message counts as sent when the kernel has accepted all of its bytes. A message counts as not sent if its
 * connection ends earlier.
 */
#ifndef SIPSCHED_LINK_H
#define SIPSCHED_LINK_H
#include "agent.h"

typedef void link_received(void *context, const char *text, size_t size, const struct peer *from,
			   uint64_t now_ns);
/*
 * A function that a TCP client's link calls when a connection failed to open, broke, or was closed by the server.
 * `owner` is the number that link_connect() received for this connection.
 */
typedef void link_lost(void *context, uint64_t owner, uint64_t now_ns);

struct link;

/*
 * Open a socket that several links may share. Return -1 and set errno if that fails. A UDP socket with a remote
 * address exchanges datagrams with that address only. For root, buffer sizes may exceed the system's limit.
 */
int open_udp(const struct sockaddr_in *local, const struct sockaddr_in *remote, int buffer_bytes);

/*
 * Discard the datagrams that are still queued, then close the socket. No counter of the kernel contains a datagram that
 * is queued when its socket closes, so the ledger of the run would miss such a datagram.
 */
void close_udp(int fd);
int open_tcp_listener(const struct sockaddr_in *local, int buffer_bytes);

/* Open a link. `socket` is -1 for a TCP client. Return NULL if memory or descriptors run out. */
struct link *link_open(int socket, bool reliable, bool connected, int buffer_bytes);
void link_free(struct link *link);
void link_set_callbacks(struct link *link, link_received *received, link_lost *lost, void *context);

struct outbox *link_outbox(struct link *link);
/* Return the urgent outbox, whose messages are sent before the messages of the normal outbox. */
struct outbox *link_urgent(struct link *link);
struct counts *link_counts(struct link *link);

/* TCP: start to connect, but do not wait. Return false if the connection cannot be started. */
bool link_connect(struct link *link, const struct sockaddr_in *local, const struct sockaddr_in *remote,
		  uint64_t owner, struct peer *peer);
bool link_is_open(const struct link *link, const struct peer *peer);
/* Close a connection as soon as all its messages in the outbox and in its own buffer are sent. */
void link_close(struct link *link, const struct peer *peer);

/* TCP: close all connections. Count their unsent messages as not sent. */
void link_close_all(struct link *link);

/*
 * Send messages. link_flush() sends the whole outbox, link_flush_one() sends its first message (TCP: all messages),
 * and link_flush_urgent() sends the urgent outbox.
 */
void link_flush(struct link *link);
void link_flush_one(struct link *link);
void link_flush_urgent(struct link *link);

/* Receive all available messages. If none is available, wait for at most `wait_ns`. Return false if no message came. */
bool link_poll(struct link *link, uint64_t wait_ns);
#endif
